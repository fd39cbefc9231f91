# The tokenizer beside the reference implementation, on 100,000 texts: skipped, with the reason, where it is not installed.
add_executable(tokenizer_tool model/tokenizer_tool.c)
target_link_libraries(tokenizer_tool PRIVATE gb_model)
set_target_properties(tokenizer_tool PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_test(NAME model/tokenizer_diff
         COMMAND sh -c "python=$1; [ -x \"$python\" ] || python=python3; shift; exec \"$python\" \"$@\"" sh ${CMAKE_SOURCE_DIR}/.venv/bin/python3
                 ${CMAKE_CURRENT_LIST_DIR}/tokenizer_diff.py $<TARGET_FILE:tokenizer_tool> ${CMAKE_SOURCE_DIR}/examples/models/tiny-moe/tokenizer.json)
set_tests_properties(model/tokenizer_diff PROPERTIES LABELS model SKIP_RETURN_CODE 77 TIMEOUT 1200)
