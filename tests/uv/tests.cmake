gb_threads(uv/worker_test uv/driver_test)

# A policy host needs a server to decide for.
target_link_libraries(uv_watch_test PRIVATE serve_fake)
