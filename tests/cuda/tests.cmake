# The CUDA room without a GPU: kernels and host code run on the emulator (cuda/cuemu). What every build checks is one pass in the plain
# mode; the gates of `./dev test cuda` (GB_CUDA_CHECKS) add the other thread orders, the sanitizers, the track build, kernels with a
# planted bug, and what nvcc says.
option(GB_CUDA_CHECKS "all gates of the CUDA room" OFF)

# Everything that `./dev test cuda` builds.
add_custom_target(cuda_checks)

if(GB_CUDA_HEADERS)

file(GLOB test_kernel_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cuda/*.cu)

# gb_cuda_program(PROGRAM MODE SOURCE LIBRARIES...): a C test with emulated kernels.
function(gb_cuda_program program mode source)
  add_executable(${program} ${source} cuda/device.c)
  target_compile_definitions(${program} PRIVATE GB_CUDA_NAME="cuemu")
  target_include_directories(${program} SYSTEM PRIVATE ${GB_CUDA_INCLUDE})
  target_link_libraries(${program} PRIVATE gb_check ${ARGN})
  if(mode STREQUAL "asan")
    target_compile_options(${program} PRIVATE -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_libraries(${program} PRIVATE gb_cuda_host_asan cuemu_asan)
  else()
    target_link_libraries(${program} PRIVATE gb_cuda_host cuemu)
  endif()
  set_target_properties(${program} PROPERTIES LINKER_LANGUAGE CXX RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endfunction()

function(gb_cuda_run name program)
  add_dependencies(cuda_checks ${program})
  add_test(NAME cuda/${name} COMMAND ${program} WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  set_tests_properties(cuda/${name} PROPERTIES LABELS cuda TIMEOUT 600 ENVIRONMENT "${ARGN}")
endfunction()

set(modes plain)
if(GB_CUDA_CHECKS)
  set(modes plain asan track)
endif()
# The kernels of the house (cuda/CMakeLists.txt) and those of the tests in each mode.
set(cuda_objects_plain cuemu_kernels zoo_plain)
set(cuda_objects_asan cuemu_kernels_asan zoo_asan)
set(cuda_objects_track cuemu_kernels_track zoo_track)
foreach(mode IN LISTS modes)
  gb_cuemu_kernels(zoo_${mode} ${mode} ${test_kernel_sources})
endforeach()

# Twins: cuda/<file>_test.c in every mode, and in the plain mode in every thread order: kernels in all of them, the whole backend in the
# most mixed one, and what has no kernels in the modes that see it.
set(without_kernels gang_test layout_test wire_test)
set(whole_backend agree_test counts_test failure_test spread_test tokens_test)
set(several_ranks world_test)
file(GLOB sources CONFIGURE_DEPENDS cuda/*_test.c)
foreach(source IN LISTS sources)
  get_filename_component(file ${source} NAME_WE)
  gb_cuda_program(cuda_${file} plain ${source} ${cuda_objects_plain})
  gb_cuda_run(${file} cuda_${file})
  if(GB_CUDA_CHECKS)
    set(file_modes asan track)
    set(orders descending random warp_random)
    if(file IN_LIST without_kernels)
      set(file_modes asan)
      set(orders "")
    elseif(file IN_LIST whole_backend)
      set(orders random)
    elseif(file IN_LIST several_ranks)
      set(orders "")
    endif()
    foreach(order IN LISTS orders)
      gb_cuda_run(${file}.${order} cuda_${file} CUEMU_ORDER=${order} CUEMU_SEED=7)
    endforeach()
    foreach(mode IN LISTS file_modes)
      gb_cuda_program(cuda_${file}_${mode} ${mode} ${source} ${cuda_objects_${mode}})
      gb_cuda_run(${file}.${mode} cuda_${file}_${mode} CUEMU_ORDER=random CUEMU_SEED=11)
    endforeach()
  endif()
endforeach()

# The whole backend runs checkpoints through tests/forward's harness, and once more with streams that run late.
foreach(mode IN LISTS modes)
  foreach(test agree counts failure gang spread tokens world)
    string(REPLACE "_plain" "" program cuda_${test}_test_${mode})
    if(TARGET ${program})
      target_link_libraries(${program} PRIVATE gb_forward_harness)
    endif()
  endforeach()
endforeach()
gb_cuda_run(agree_test.lazy cuda_agree_test CUEMU_STREAMS=lazy)
gb_cuda_run(counts_test.lazy cuda_counts_test CUEMU_STREAMS=lazy)
gb_cuda_run(world_test.lazy cuda_world_test CUEMU_STREAMS=lazy)
if(GB_CUDA_CHECKS)
  gb_cuda_run(counts_test.others_first cuda_counts_test CUEMU_STREAMS=others_first)
  gb_cuda_run(agree_test.others_first cuda_agree_test CUEMU_STREAMS=others_first)
endif()

# The benchmark's steps with tiny sizes: what it computes is checked, times mean nothing.
function(gb_cuda_bench_test name program step)
  add_dependencies(cuda_checks ${program})
  add_test(NAME cuda/${name} COMMAND ${program} ${step})
  set_tests_properties(cuda/${name} PROPERTIES LABELS cuda TIMEOUT 600)
endfunction()
foreach(step ceilings kernels counting ranks nccl layers)
  gb_cuda_bench_test(bench.${step} gimbal_cuemu_bench ${step})
  if(GB_CUDA_CHECKS AND NOT step STREQUAL "layers")    # agree_test tracks the whole backend
    gb_cuda_bench_test(bench.${step}.track gimbal_cuemu_bench_track ${step})
  endif()
endforeach()

include(cuda/device.cmake)
add_dependencies(cuda_checks device_check)
if(GB_CUDA_CHECKS AND GB_NVCC)
  get_target_property(device_programs device_tests MANUALLY_ADDED_DEPENDENCIES)
  list(TRANSFORM device_programs REPLACE "(.+)" "$<TARGET_FILE:\\1>")
  add_test(NAME cuda/device.no_gpu COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cuda/no_gpu.sh ${device_programs})
  set_tests_properties(cuda/device.no_gpu PROPERTIES LABELS cuda SKIP_REGULAR_EXPRESSION "skipped: there is a GPU")
  add_test(NAME cuda/device.only COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cuda/device_only.sh ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/device_only)
  set_tests_properties(cuda/device.only PROPERTIES LABELS cuda TIMEOUT 600)
endif()

if(GB_CUDA_CHECKS)
  add_test(NAME cuda/device_check COMMAND ${GB_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/cuda/device_check_test.py)
  set_tests_properties(cuda/device_check PROPERTIES LABELS cuda TIMEOUT 600 ENVIRONMENT "GB_BUILD=${CMAKE_BINARY_DIR}")
endif()

if(GB_CUDA_CHECKS)
  include(cuda/planted.cmake)

  # Fibers as other processors than x86-64 have them.
  gb_cuda_program(cuda_zoo_test_ucontext plain cuda/zoo_test.c zoo_plain)
  target_sources(cuda_zoo_test_ucontext PRIVATE ${CMAKE_SOURCE_DIR}/cuda/cuemu/block.cpp)
  target_compile_definitions(cuda_zoo_test_ucontext PRIVATE CUEMU_UCONTEXT)
  gb_cuda_run(zoo_test.ucontext cuda_zoo_test_ucontext)
endif()

else()

add_test(NAME cuda/emulator COMMAND ${CMAKE_COMMAND} -E echo "skipped: no CUDA emulator, see what cmake says about it")
set_tests_properties(cuda/emulator PROPERTIES LABELS cuda SKIP_REGULAR_EXPRESSION "skipped: ")

endif()

if(GB_CUDA_CHECKS)
  include(cuda/gates.cmake)

  # What `./dev test` has not run.
  get_property(gates DIRECTORY PROPERTY TESTS)
  list(FILTER gates INCLUDE REGEX "^cuda/.*(\\.(descending|random|warp_random|others_first|asan|track|ucontext)$|planted\\.|gate\\.|device)")
  set_property(TEST ${gates} APPEND PROPERTY LABELS gate)
endif()
