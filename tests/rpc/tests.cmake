# The RPC tests share a served model without a model: tests/rpc/fixture.h.
add_library(gb_rpc_fixture STATIC rpc/fixture.c)
target_link_libraries(gb_rpc_fixture PUBLIC gb_rpc gb_check)
file(GLOB rpc_tests CONFIGURE_DEPENDS rpc/*_test.c)
foreach(source IN LISTS rpc_tests)
  get_filename_component(file ${source} NAME_WE)
  target_link_libraries(rpc_${file} PRIVATE gb_rpc_fixture)
endforeach()
