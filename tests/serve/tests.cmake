# The fake executor and the small tokenizers are shared by the tests of this room.
add_library(serve_fake STATIC serve/fake.c serve/fake_text.c)
target_link_libraries(serve_fake PUBLIC gb_serve)
foreach(program server_test admission_test migration_test feedback_test storm_test stream_test)
  target_link_libraries(serve_${program} PRIVATE serve_fake)
endforeach()

# Purity: nm -u of the rooms that must not know the outside.
add_test(NAME serve/purity COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/serve/purity.sh ${CMAKE_NM} $<TARGET_FILE:gb_base>
         $<TARGET_FILE:gb_flow> $<TARGET_FILE:gb_moe> $<TARGET_FILE:gb_serve>)
# The test itself must be able to fail: a room with a clock in it is not pure.
add_library(serve_impure STATIC serve/impure.c)
add_test(NAME serve/purity_finds_a_clock COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/serve/purity.sh ${CMAKE_NM}
         $<TARGET_FILE:gb_base> $<TARGET_FILE:serve_impure>)
set_tests_properties(serve/purity_finds_a_clock PROPERTIES PASS_REGULAR_EXPRESSION "must not need:\ntime")
set_tests_properties(serve/purity serve/purity_finds_a_clock PROPERTIES LABELS serve)
