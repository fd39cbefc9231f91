# The harness that runs a checkpoint for the tests of forward.
add_library(gb_forward_harness STATIC forward/harness.c)
target_link_libraries(gb_forward_harness PUBLIC gb_check gb_cpu)
target_link_libraries(forward_golden_test PRIVATE gb_forward_harness)
target_link_libraries(forward_forward_test PRIVATE gb_forward_harness)

# The golden tests once more with the AVX-512 rungs over an emulation (gb_emulated_test is tests/cpu's).
gb_emulated_test(forward golden gb_forward_harness cpu/emulated_avx512f.c cpu/emulated_avx512_bf16.c)

gb_threads(forward/forward_test)
