# The host decides for a real server over the fake executor of the serve tests.
foreach(test lua_host lua_swap lua_idle lua_place lua_runaway lua_keep lua_budgets lua_shadow lua_journal)
  target_link_libraries(lua_${test}_test PRIVATE gb_serve serve_fake)
endforeach()

# Scripts that have to be interrupted: ThreadSanitizer holds signals back, so its preset leaves them out (CMakePresets.json).
target_sources(lua_lua_runaway_test PRIVATE lua/runaway.c)
set_property(TEST lua/lua_runaway_test lua/lua_guard_test APPEND PROPERTY LABELS runaway)
target_link_libraries(lua_lua_agree_test PRIVATE gb_moe_fixture)

# Specs under plain LuaJIT: policies with fake columns, templates, the author's kit.
find_program(BUSTED busted)
find_program(LUAJIT luajit)
if(BUSTED AND LUAJIT)
  add_test(NAME lua/specs COMMAND ${BUSTED} --lua=${LUAJIT} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
else()
  add_test(NAME lua/specs COMMAND ${CMAKE_COMMAND} -E echo "skipped: busted or luajit is not installed")
  set_tests_properties(lua/specs PROPERTIES SKIP_REGULAR_EXPRESSION "skipped: ")
endif()
set_tests_properties(lua/specs PROPERTIES LABELS lua TIMEOUT 120)
