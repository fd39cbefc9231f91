# The plugin of backend_test in its variants, each a libgimbal_cuemu.so in a folder of its own.
foreach(variant GOOD NO_DEVICE NO_SYMBOL OLD_ABI OTHER_BUILD)
  add_library(c_plugin_${variant} MODULE c/backend_fixture.c)
  target_compile_definitions(c_plugin_${variant} PRIVATE ${variant})
  target_link_libraries(c_plugin_${variant} PRIVATE gb_base)
  set_target_properties(c_plugin_${variant} PROPERTIES OUTPUT_NAME gimbal_cuemu
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/plugins/${variant})
  add_dependencies(c_backend_test c_plugin_${variant})
endforeach()
target_compile_definitions(c_backend_test PRIVATE PLUGINS="${CMAKE_BINARY_DIR}/tests/plugins/")
