# The CUDA room's tools: nvcc for the chip, g++ and the emulator (cuda/cuemu) for everywhere else. Either may be missing; then what
# needs it is left out and a line says why.
#
#   GB_CUDA_HEADERS   the CUDA headers are here, and C++ for the emulator: gb_cuemu_kernels works
#   GB_NVCC           nvcc is here: gb_cuda_kernels works
#
# CUDA_HOME (cache variable or environment, default /usr/local/cuda) says where to look.

set(GB_CUDA_HOME "$ENV{CUDA_HOME}")
if(CUDA_HOME)
  set(GB_CUDA_HOME "${CUDA_HOME}")
endif()
if(NOT GB_CUDA_HOME)
  set(GB_CUDA_HOME /usr/local/cuda)
endif()

set(GB_CUDA_HEADERS FALSE)
set(GB_NVCC "")
set(GB_CUDA_INCLUDE ${GB_CUDA_HOME}/include)

if(NOT EXISTS ${GB_CUDA_INCLUDE}/cuda_runtime.h)
  set(gb_why "no CUDA headers under ${GB_CUDA_HOME} (set CUDA_HOME)")
elseif(NOT EXISTS ${GB_CUDA_INCLUDE}/nccl.h)
  set(gb_why "no nccl.h under ${GB_CUDA_INCLUDE}")
elseif(NOT CMAKE_C_COMPILER_ID STREQUAL "GNU")
  set(gb_why "the emulator is built with gcc, this is ${CMAKE_C_COMPILER_ID}")
elseif(GB_SANITIZE)
  set(gb_why "its own builds with AddressSanitizer and with every access checked are part of './dev test cuda'")
else()
  include(CheckLanguage)
  check_language(CXX)
  if(CMAKE_CXX_COMPILER)
    enable_language(CXX)
    set(GB_CUDA_HEADERS TRUE)
  else()
    set(gb_why "no C++ compiler")
  endif()
endif()

if(GB_CUDA_HEADERS)
  set(CMAKE_CXX_STANDARD 17)
  set(CMAKE_CXX_STANDARD_REQUIRED ON)
  set(CMAKE_CXX_EXTENSIONS ON)
  set(CMAKE_CXX_VISIBILITY_PRESET hidden)
  if(CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  endif()
  find_library(GB_CUBLASLT cublasLt HINTS ${GB_CUDA_HOME}/lib64 NO_CACHE)
  find_library(GB_CUBLAS cublas HINTS ${GB_CUDA_HOME}/lib64 NO_CACHE)
  find_library(GB_NCCL nccl HINTS ${GB_CUDA_HOME}/lib64 NO_CACHE)
  if(EXISTS ${GB_CUDA_HOME}/bin/nvcc AND GB_CUBLASLT AND GB_CUBLAS AND GB_NCCL)
    set(GB_NVCC ${GB_CUDA_HOME}/bin/nvcc)
    set(GB_CUDA_LIBRARIES ${GB_CUBLASLT} ${GB_CUBLAS} ${GB_NCCL})
  endif()
  message(STATUS "CUDA emulator: yes, headers of ${GB_CUDA_HOME}")
else()
  message(STATUS "CUDA emulator: no, ${gb_why}")
endif()
if(GB_NVCC)
  message(STATUS "CUDA plugin: yes, ${GB_NVCC}")
else()
  message(STATUS "CUDA plugin: no, needs nvcc, cublasLt and nccl under ${GB_CUDA_HOME} and a build without sanitizers")
endif()

# Device code for Hopper, and PTX for what came before (tensor cores of sm_80) and comes after. A spill is an error.
set(GB_CUDA_TARGETS -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_90,code=compute_90 -gencode=arch=compute_80,code=compute_80)
set(GB_CUDA_DEVICE_FLAGS -std=c++17 -O3 -lineinfo --expt-relaxed-constexpr -I${CMAKE_SOURCE_DIR})
set(GB_CUDA_NO_SPILLS -Xptxas -warn-spills,-warn-lmem-usage,-Werror)
set(GB_CUDA_FLAGS ${GB_CUDA_DEVICE_FLAGS} ${GB_CUDA_NO_SPILLS}
    -Xcompiler -fPIC,-fvisibility=hidden,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-Wall)

# gb_cuda_kernels(TARGET SOURCE.cu...): an object of each source by nvcc, as the INTERFACE library TARGET. Without nvcc TARGET is
# not made.
function(gb_cuda_kernels target)
  if(NOT GB_NVCC)
    return()
  endif()
  set(objects "")
  foreach(source IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_SOURCE_DIR})
    get_filename_component(name ${source} NAME_WE)
    set(object ${CMAKE_BINARY_DIR}/cuda/${target}/${name}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND ${CCACHE} ${GB_NVCC} ${GB_CUDA_TARGETS} ${GB_CUDA_FLAGS} -MD -MF ${object}.d -c ${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d COMMENT "nvcc ${name}.cu" VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda/${target})
  add_custom_target(${target}_objects DEPENDS ${objects})
  add_library(${target} INTERFACE)
  add_dependencies(${target} ${target}_objects)
  target_link_libraries(${target} INTERFACE ${objects})
endfunction()

# C++ of the emulator: warnings as in C, file and line for the reports.
function(gb_cuemu_options target)
  target_include_directories(${target} SYSTEM PUBLIC ${GB_CUDA_INCLUDE})
  target_compile_options(${target} PRIVATE -g1)
endfunction()

# gb_cuemu_kernels(TARGET MODE SOURCE.cu...): the same sources by g++ for the emulator, as the object library TARGET. MODE is
#   plain   as fast as it gets                     asan    with AddressSanitizer and UBSan (link with cuemu_asan)
#   track   every load and store is checked        (plain and track link with cuemu)
function(gb_cuemu_kernels target mode)
  if(NOT GB_CUDA_HEADERS)
    return()
  endif()
  add_library(${target} OBJECT ${ARGN})
  gb_cuemu_options(${target})
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX)
  # Without -fno-crossjumping gcc merges two barriers into one, and their divergence cannot be seen.
  target_compile_options(${target} PRIVATE -include ${CMAKE_SOURCE_DIR}/cuda/cuemu/cuemu.h -fno-crossjumping -Wno-unknown-pragmas -Wno-unused-parameter)
  if(mode STREQUAL "asan")
    target_compile_options(${target} PRIVATE -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  elseif(mode STREQUAL "track")
    target_compile_options(${target} PRIVATE -fsanitize=thread)
  endif()
endfunction()

# The emulator itself, as cuemu and (for asan objects) cuemu_asan.
if(GB_CUDA_HEADERS)
  file(GLOB cuemu_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/cuda/cuemu/*.cpp)
  add_library(cuemu STATIC ${cuemu_sources})
  gb_cuemu_options(cuemu)
  target_link_libraries(cuemu PUBLIC ${CMAKE_DL_LIBS} Threads::Threads)
  add_library(cuemu_asan STATIC EXCLUDE_FROM_ALL ${cuemu_sources})
  gb_cuemu_options(cuemu_asan)
  target_compile_options(cuemu_asan PRIVATE -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(cuemu_asan PUBLIC -fsanitize=address,undefined)
  target_link_libraries(cuemu_asan PUBLIC ${CMAKE_DL_LIBS} Threads::Threads)
endif()
