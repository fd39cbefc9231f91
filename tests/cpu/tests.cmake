# The AVX-512 rungs over SIMDe's emulation of their instructions (libsimde-dev, headers only): checked where no CPU runs them.
include(CheckIncludeFile)
check_include_file(simde/x86/avx512.h GB_HAVE_SIMDE)
set(GB_EMULATE OFF)
# Sanitizers and fuzzers look at memory, not at arithmetic: emulated kernels would only cost them minutes of compiling.
if(GB_HAVE_SIMDE AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64" AND NOT GB_SANITIZE AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
  set(GB_EMULATE ON)
endif()

# gb_emulated_test(ROOM FILE LIBRARY SOURCE...): the twin of that file once more, as <room>/<file>_emulated, with emulated rungs.
function(gb_emulated_test room file library)
  set(program ${room}_${file}_emulated)
  if(GB_EMULATE)
    add_executable(${program} ${room}/${file}_test.c ${ARGN})
    target_compile_definitions(${program} PRIVATE GB_TEST_EMULATED)
    # 64-byte vectors by value without AVX-512: only between functions of one file here.
    target_compile_options(${program} PRIVATE -Wno-psabi -O1)
    target_link_libraries(${program} PRIVATE gb_check ${library})
    set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    add_test(NAME ${room}/${file}_emulated COMMAND ${program} WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  else()
    add_test(NAME ${room}/${file}_emulated
             COMMAND ${CMAKE_COMMAND} -E echo "skipped: needs simde/x86/avx512.h (libsimde-dev) on x86-64, gcc and no sanitizer")
    set_tests_properties(${room}/${file}_emulated PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: ")
  endif()
  set_tests_properties(${room}/${file}_emulated PROPERTIES LABELS ${room} TIMEOUT 600)
endfunction()

gb_emulated_test(cpu matmul gb_cpu cpu/emulated_avx512f.c cpu/emulated_avx512_bf16.c)
gb_emulated_test(cpu vector gb_cpu cpu/emulated_vector_avx512f.c)

gb_threads(cpu/threads_test cpu/probe_test)
