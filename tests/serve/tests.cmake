# The fake executor is shared by the tests of this room.
add_library(serve_fake STATIC serve/fake.c serve/fake_tokenizer.c)
target_link_libraries(serve_fake PUBLIC gb_serve)
target_link_libraries(serve_server_test PRIVATE serve_fake)
