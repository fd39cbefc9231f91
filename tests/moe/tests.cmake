# Placement problems with known answers, read with jansson.
add_library(gb_moe_fixture STATIC moe/fixture.c)
target_link_libraries(gb_moe_fixture PUBLIC gb_check gb_moe PkgConfig::JANSSON)
foreach(program moe_score_test moe_solve_test moe_greedy_test moe_exact_test)
  target_link_libraries(${program} PRIVATE gb_moe_fixture)
endforeach()
