# The AVX-512 rungs over SIMDe's emulation of their instructions (libsimde-dev, headers only): checked where no CPU runs them.
include(CheckIncludeFile)
check_include_file(simde/x86/avx512.h GB_HAVE_SIMDE)
if(GB_HAVE_SIMDE AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  add_executable(cpu_matmul_emulated cpu/matmul_test.c cpu/emulated_avx512f.c cpu/emulated_avx512_bf16.c)
  target_compile_definitions(cpu_matmul_emulated PRIVATE GB_TEST_EMULATED)
  # 64-byte vectors by value without AVX-512: only between functions of one file here.
  target_compile_options(cpu_matmul_emulated PRIVATE -Wno-psabi)
  target_link_libraries(cpu_matmul_emulated PRIVATE gb_check gb_cpu)
  set_target_properties(cpu_matmul_emulated PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME cpu/matmul_emulated COMMAND cpu_matmul_emulated WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
else()
  add_test(NAME cpu/matmul_emulated
           COMMAND ${CMAKE_COMMAND} -E echo "skipped: needs simde/x86/avx512.h (libsimde-dev) on x86-64")
  set_tests_properties(cpu/matmul_emulated PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: ")
endif()
set_tests_properties(cpu/matmul_emulated PROPERTIES LABELS cpu TIMEOUT 600)
