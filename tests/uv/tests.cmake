# What runs more than one thread is also run under ThreadSanitizer.
set_tests_properties(uv/worker_test uv/driver_test PROPERTIES LABELS "uv;threads")

# A policy host needs a server to decide for.
target_link_libraries(uv_watch_test PRIVATE serve_fake)
