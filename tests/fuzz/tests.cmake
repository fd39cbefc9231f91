# Fuzz targets (clang, GB_FUZZ=ON): every fuzz/<name>_fuzz.c becomes the program fuzz_<name>, linked with the whole house, with
# its seeds in fuzz/corpus/<name>/. A run, by hand: build/fuzz/tests/fuzz_config -max_total_time=60 CORPUS tests/fuzz/corpus/config
# (new inputs go to the first folder). The test fuzz/<name> runs the seeds and then five seconds more, keeping nothing.
if(GB_FUZZ)
  file(GLOB fuzz_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*_fuzz.c)
  add_custom_target(fuzzers)
  foreach(source IN LISTS fuzz_sources)
    get_filename_component(name ${source} NAME_WE)
    string(REGEX REPLACE "_fuzz$" "" name ${name})
    add_executable(fuzz_${name} ${source})
    target_compile_definitions(fuzz_${name} PRIVATE GB_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    target_link_libraries(fuzz_${name} PRIVATE gb_cli)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(fuzz_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    add_dependencies(fuzzers fuzz_${name})
    set(corpus ${CMAKE_BINARY_DIR}/tests/corpus/${name})
    file(MAKE_DIRECTORY ${corpus})
    add_test(NAME fuzz/${name} COMMAND fuzz_${name} -max_total_time=5 -timeout=10 -rss_limit_mb=1024 -max_len=16384 -print_final_stats=1
             ${corpus} ${CMAKE_CURRENT_LIST_DIR}/corpus/${name})
    set_tests_properties(fuzz/${name} PROPERTIES LABELS fuzz TIMEOUT 120)
  endforeach()
endif()
