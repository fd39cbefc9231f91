# Programs for a machine with a GPU: the twins of tests/cuda on nvcc's kernels and the real libraries, as the target device_tests. They
# are built wherever nvcc is, and end with status 77 and a sentence where there is no GPU. tools/device_check.sh runs them and the
# benchmark, and builds both as the target device_check.
add_custom_target(device_tests)
add_custom_target(device_check DEPENDS device_tests)
if(NOT GB_NVCC)
  if(GB_DEVICE_ONLY)
    message(FATAL_ERROR "GB_DEVICE_ONLY needs nvcc, cublas, cublasLt and nccl: see the line about the CUDA plugin above")
  endif()
  return()
endif()

add_dependencies(device_check gimbal_cuda_bench)

# Kernels of the tests; the zoo's are wrong on purpose and only the emulator says so.
file(GLOB device_kernel_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cuda/*.cu)
list(FILTER device_kernel_sources EXCLUDE REGEX "/zoo\\.cu$")
gb_cuda_kernels(device_test_kernels ${device_kernel_sources})

# gb_device_program(PROGRAM SOURCE LIBRARIES...): a C program on the chip's kernels.
function(gb_device_program program)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
  add_executable(${program} EXCLUDE_FROM_ALL ${arg_SOURCES})
  target_compile_definitions(${program} PRIVATE GB_CUDA_NAME="cuda")
  target_include_directories(${program} SYSTEM PRIVATE ${GB_CUDA_INCLUDE})
  target_link_options(${program} PRIVATE -Wl,--as-needed)
  target_link_libraries(${program} PRIVATE ${arg_LIBRARIES} cuda_kernels gb_cuda_host_gpu cuda_kernels ${GB_CUDA_RUNTIME})
  set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/device)
endfunction()

# Tests of kernels and of the whole backend. One that looks at the emulator's reports, refuses calls or makes devices says something about
# the emulator, and stays there (its settings of orders and streams just do nothing on a chip); one that opens checkpoints needs the
# libraries of core/model.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cuda/*_test.c)
foreach(source IN LISTS sources)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  file(READ ${source} text)
  string(REGEX REPLACE "cuemu_(tracks|set_order|set_streams)\\(" "" calls "${text}")    # on_gpu.c has these
  if(NOT text MATCHES "tests/cuda/device.h|gimbal_backend_open" OR calls MATCHES "cuemu_[a-z_]+\\(")
    continue()
  endif()
  set(libraries gb_check device_test_kernels)
  if(text MATCHES "tests/forward/harness.h")
    if(GB_DEVICE_ONLY)
      continue()
    endif()
    list(PREPEND libraries gb_forward_harness)
  endif()
  get_filename_component(file ${source} NAME_WE)
  gb_device_program(device_${file} SOURCES ${source} cuda/device.c cuda/on_gpu.c LIBRARIES ${libraries})
  target_link_options(device_${file} PRIVATE -Wl,--wrap=check_main)
  set_target_properties(device_${file} PROPERTIES OUTPUT_NAME ${file})
  add_dependencies(device_tests device_${file})
endforeach()
