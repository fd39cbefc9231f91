# End to end: scripts against the real binary. Exit code 77 says that a test cannot run here (no msgpack for Python).
find_program(GB_PYTHON python3 HINTS ${CMAKE_SOURCE_DIR}/.venv/bin NO_DEFAULT_PATH)
find_program(GB_PYTHON python3)

function(gb_e2e name labels)
  add_test(NAME e2e/${name} COMMAND ${GB_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/e2e/${name}.py ${ARGN})
  set_tests_properties(e2e/${name} PROPERTIES LABELS "${labels}" TIMEOUT 1800 SKIP_RETURN_CODE 77
                       ENVIRONMENT "GIMBAL=$<TARGET_FILE:gimbal>;GIMBAL_SANITIZER=${GB_SANITIZE};PYTHONDONTWRITEBYTECODE=1")
endfunction()

gb_e2e(cli_test e2e)
gb_e2e(server_test e2e)
gb_e2e(bad_input_test e2e)
gb_e2e(streams_test "e2e;threads")
gb_e2e(determinism_test e2e)
gb_e2e(soak soak)
gb_e2e(place_test e2e)
gb_e2e(policy_verbs_test e2e)
gb_e2e(policy_store_test e2e)
gb_e2e(policy_swap_test "e2e;threads")
gb_e2e(author_test e2e)
gb_e2e(bundles_test e2e)
gb_e2e(cuemu_test "e2e;cuda")
gb_e2e(ranks_test "e2e;cuda")
