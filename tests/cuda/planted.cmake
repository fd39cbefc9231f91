# Planted bugs: a kernel with one mistake in it, made by replacing a piece of its text, must fail a test that the right kernel passes, and
# the output must say why. So nobody can weaken the checks without a red test.

# gb_cuda_planted_bug(NAME MODE TEST KERNEL FILE TEXT REPLACEMENT EXPECTED): in FILE (KERNEL.cu or a header of it), TEXT becomes REPLACEMENT;
# cuda/TEST.c on that kernel, built in MODE, must fail and say EXPECTED.
function(gb_cuda_planted_bug name mode test kernel file text replacement expected)
  set(original ${CMAKE_SOURCE_DIR}/cuda/kernels/${file})
  set(folder ${CMAKE_BINARY_DIR}/planted/${name})
  set(changed ${folder}/cuda/kernels/${file})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${original})
  file(READ ${original} right)
  string(REPLACE "${text}" "${replacement}" wrong "${right}")
  if(wrong STREQUAL right)
    message(FATAL_ERROR "planted bug ${name}: ${file} no longer holds the text that it replaces; find it a new place in tests/cuda/planted.cmake")
  endif()
  set(before "")
  if(EXISTS ${changed})
    file(READ ${changed} before)
  endif()
  if(NOT wrong STREQUAL before)
    file(WRITE ${changed} "${wrong}")
  endif()

  set(source ${CMAKE_SOURCE_DIR}/cuda/kernels/${kernel}.cu)
  if(file STREQUAL "${kernel}.cu")
    set(source ${changed})
  endif()
  list(GET cuda_objects_${mode} 0 kernels)
  gb_cuemu_kernels(planted_${name} ${mode} ${source})
  target_include_directories(planted_${name} BEFORE PRIVATE ${folder})
  gb_cuda_program(cuda_planted_${name} ${mode} cuda/${test}.c planted_${name})
  # The objects of the other kernels.
  target_link_libraries(cuda_planted_${name} PRIVATE "$<FILTER:$<TARGET_OBJECTS:${kernels}>,EXCLUDE,/${kernel}\\.cu\\.o$>")
  add_dependencies(cuda_checks cuda_planted_${name})
  add_test(NAME cuda/planted.${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cuda/must_fail.sh ${expected} $<TARGET_FILE:cuda_planted_${name}>)
  set_tests_properties(cuda/planted.${name} PROPERTIES LABELS cuda TIMEOUT 600)
endfunction()

# Barriers that no numeric test would miss.
gb_cuda_planted_bug(dispatch_counts_before_all_is_clear track dispatch_test dispatch dispatch.cu
  "s_slots[i] = 0;\n    __syncthreads();" "s_slots[i] = 0;" "RACE in shared memory")
gb_cuda_planted_bug(norm_sums_before_all_warps_wrote track rows_test norm norm.cu
  "= x;\n    __syncthreads();" "= x;" "RACE in shared memory")
gb_cuda_planted_bug(experts_load_over_a_stage_in_use track experts_test experts experts.cu
  "__syncthreads();    /* this step's stage" "/* this step's stage" "RACE in shared memory")
gb_cuda_planted_bug(experts_start_a_tile_over_the_last_one track experts_test experts experts.cu
  "__syncthreads();    /* the next tile's" "/* the next tile's" "RACE in shared memory")
gb_cuda_planted_bug(attention_loads_over_a_tile_in_use track attention_test attention_decode attention.cuh
  "__syncthreads();    /* the tile may" "/* the tile may" "RACE in shared memory")
gb_cuda_planted_bug(arrive_counts_before_all_is_clear track exchange_test arrive arrive.cu
  "s_counts[i] = 0;\n    __syncthreads();" "s_counts[i] = 0;" "RACE in shared memory")
gb_cuda_planted_bug(land_judges_before_all_is_counted track exchange_test land land.cu
  "count_rows(a, s_rows);\n    __syncthreads();" "count_rows(a, s_rows);" "RACE in shared memory")

gb_cuda_planted_bug(experts_wgmma_copy_over_a_stage_in_use track experts_test experts_wgmma experts_wgmma.cu
  "gb_wgmma_wait<1>();" "gb_wgmma_wait<2>();" "RACE in shared memory")
gb_cuda_planted_bug(experts_wgmma_turn_over_what_is_read track experts_test experts_wgmma experts_wgmma.cu
  "__syncwarp();    /* what lies there was read */" "" "RACE in shared memory")
gb_cuda_planted_bug(experts_wgmma_share_barriers_too_early track experts_test experts_wgmma experts_wgmma.cu
  "gb_fence_async();\n    }\n    __syncthreads();" "gb_fence_async();\n    }" "RACE in shared memory")

# Copies that have not arrived: poison in plain builds, unset memory in the track build.
gb_cuda_planted_bug(experts_multiply_what_is_under_way plain experts_test experts experts.cu
  "gb_cp_wait<S::kStages - 2>()" "gb_cp_wait<S::kStages - 1>()" "FAIL")
gb_cuda_planted_bug(attention_reads_what_is_under_way track attention_test attention_decode attention.cuh
  "gb_cp_wait<1>()" "gb_cp_wait<2>()" "UNINITIALISED")

gb_cuda_planted_bug(experts_wgmma_multiply_what_is_under_way plain experts_test experts_wgmma experts_wgmma.cu
  "gb_mbarrier_wait(s.full + at.stage, at.parity);" "" "COPY UNDER WAY")
gb_cuda_planted_bug(experts_wgmma_free_a_stage_too_early plain experts_test experts_wgmma experts_wgmma.cu
  "gb_wgmma_wait<1>();" "gb_wgmma_wait<2>();" "FAIL")
gb_cuda_planted_bug(experts_wgmma_fill_what_is_not_free plain experts_test experts_wgmma experts_wgmma.cu
  "gb_mbarrier_wait(s.empty + at.stage, at.parity);" "" "an arrival more")
gb_cuda_planted_bug(experts_wgmma_store_open_products plain experts_test experts_wgmma experts_wgmma.cu
  "gb_wgmma_wait<0>();" "" "FAIL")
gb_cuda_planted_bug(experts_wgmma_expect_too_few_bytes plain experts_test experts_wgmma experts_wgmma.cu
  "gb_mbarrier_arrive_expect(full, P::kStageBytes)" "gb_mbarrier_arrive_expect(full, P::kStageBytes - 1024)" "DEADLOCK")
gb_cuda_planted_bug(experts_wgmma_keep_the_last_stage plain experts_test experts_wgmma experts_wgmma.cu
  "gb_wgmma_wait<0>();\n    free_stage(s.empty + before);" "gb_wgmma_wait<0>();" "DEADLOCK")

# Bounds.
gb_cuda_planted_bug(compact_writes_one_row_on plain rows_test compact compact.cu
  "a.out + (size_t)blockIdx.x" "a.out + (size_t)(blockIdx.x + 1)" "OUT OF BOUNDS")
gb_cuda_planted_bug(dispatch_reads_past_the_last_route track dispatch_test dispatch dispatch.cu
  "first + j >= routes || a.rows" "a.rows" "OUT OF BOUNDS")
gb_cuda_planted_bug(attention_reads_keys_nobody_wrote plain attention_test attention_decode attention.cuh
  "position <= t.last;" "position <= t.last + 1;" "FAIL")
gb_cuda_planted_bug(regroup_looks_behind_the_last_beginning track exchange_test regroup regroup.cu
  "at < cells && a.begin" "a.begin" "OUT OF BOUNDS")
gb_cuda_planted_bug(push_goes_beyond_its_part_of_a_window plain exchange_test push push.cu
  "goes = number < a.stride" "goes = true" "OUT OF BOUNDS")

gb_cuda_planted_bug(sample_reads_a_histogram_that_is_not_whole track sample_test sample sample.cu
  "__syncthreads();    /* the histogram" "/* the histogram" "RACE in shared memory")

# Masks, and plain wrong numbers.
gb_cuda_planted_bug(sample_adds_low_words_only plain sample_test sample sample.cu
  "(uint32_t)(x >> 32) + carry" "carry" "FAIL")
gb_cuda_planted_bug(experts_wgmma_describe_no_swizzle plain experts_test experts_wgmma wgmma.cuh
  " | (uint64_t)1 << 62" "" "FAIL")
gb_cuda_planted_bug(experts_wgmma_take_gate_for_up plain experts_test experts_wgmma experts_wgmma.cu
  "i % 2 * p.outputs + t.first_output" "t.first_output" "FAIL")
gb_cuda_planted_bug(router_forgets_half_the_warp plain router_test router router.cu
  "__shfl_xor_sync(0xffffffffu, best, step)" "__shfl_xor_sync(0x0000ffffu, best, step)" "WRONG MASK")
gb_cuda_planted_bug(router_breaks_ties_the_other_way plain router_test router router.cu
  "other > best ? other : best" "other >> 32 > best >> 32 ? other : best" "FAIL")
gb_cuda_planted_bug(combine_leaves_the_last_route_out plain dispatch_test combine combine.cu
  "k0 + j >= a.K ?" "k0 + j + 1 >= a.K ?" "FAIL")
gb_cuda_planted_bug(spread_fills_with_plus_zero plain exchange_test spread spread.cu
  "kNothing = 0x80008000" "kNothing = 0" "FAIL")
gb_cuda_planted_bug(land_takes_rows_of_another_version plain exchange_test land land.cu
  "stale = version != *a.version" "stale = false" "FAIL")

# Host code with one mistake in it.

# gb_cuda_planted_host_bug(NAME MODE TEST FILE TEXT REPLACEMENT EXPECTED STREAMS): in cuda/host/FILE, TEXT becomes REPLACEMENT; cuda/TEST.c
# with it and kernels in MODE, streams running as STREAMS, must fail and say EXPECTED. What the archive has of FILE is not taken, for it is
# there already.
function(gb_cuda_planted_host_bug name mode test file text replacement expected streams)
  set(original ${CMAKE_SOURCE_DIR}/cuda/host/${file})
  set(changed ${CMAKE_BINARY_DIR}/planted/${name}/cuda/host/${file})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${original})
  file(READ ${original} right)
  string(REPLACE "${text}" "${replacement}" wrong "${right}")
  if(wrong STREQUAL right)
    message(FATAL_ERROR "planted bug ${name}: ${file} no longer holds the text that it replaces; find it a new place in tests/cuda/planted.cmake")
  endif()
  file(CONFIGURE OUTPUT ${changed} CONTENT "${wrong}" @ONLY)
  gb_cuda_program(cuda_planted_${name} ${mode} cuda/${test}.c ${cuda_objects_${mode}} gb_forward_harness)
  target_sources(cuda_planted_${name} PRIVATE ${changed})
  add_dependencies(cuda_checks cuda_planted_${name})
  add_test(NAME cuda/planted.${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cuda/must_fail.sh ${expected} $<TARGET_FILE:cuda_planted_${name}>)
  set_tests_properties(cuda/planted.${name} PROPERTIES LABELS cuda TIMEOUT 600 ENVIRONMENT CUEMU_STREAMS=${streams})
endfunction()

# The stream of statistics must wait for kernels that count: where it does not, fewer tokens were sent than arrived, if streams run late; and
# the track build sees it however they run.
gb_cuda_planted_host_bug(counts_leave_before_they_are_counted plain counts_test counts.c
  "GB_CUDA(cudaStreamWaitEvent(cuda->statistics, cuda->counted, 0));" "" "executor->sent == executor->arrived" lazy)
gb_cuda_planted_host_bug(counts_leave_without_a_reason_to_wait track counts_test counts.c
  "GB_CUDA(cudaStreamWaitEvent(cuda->statistics, cuda->counted, 0));" "" "RACE" eager)
