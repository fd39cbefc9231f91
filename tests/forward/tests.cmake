# The harness that runs a checkpoint for the tests of forward and cpu.
add_library(gb_forward_harness STATIC forward/harness.c)
target_link_libraries(gb_forward_harness PUBLIC gb_check gb_cpu)
foreach(program forward_golden_test forward_forward_test)
  if(TARGET ${program})
    target_link_libraries(${program} PRIVATE gb_forward_harness)
  endif()
endforeach()
