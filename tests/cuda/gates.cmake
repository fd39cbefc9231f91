# What nvcc says, without a GPU: resources, instructions and links (cuda/gates/gates.py). Without nvcc the gates are skipped and say so.
set(gates ${CMAKE_SOURCE_DIR}/cuda/gates)
set(expectations ${gates}/kernels.txt)

function(gb_cuda_gate name)
  if(GB_NVCC)
    add_test(NAME cuda/gate.${name} COMMAND ${GB_PYTHON} ${gates}/gates.py ${name} ${ARGN})
  else()
    add_test(NAME cuda/gate.${name} COMMAND ${CMAKE_COMMAND} -E echo "skipped: no nvcc")
  endif()
  set_tests_properties(cuda/gate.${name} PROPERTIES LABELS cuda SKIP_REGULAR_EXPRESSION "skipped: ")
endfunction()

# gb_cuda_cubin(OUT SOURCE.cu): Hopper's code of a file, with what ptxas says about it beside it in .log. A spill fails the build.
function(gb_cuda_cubin out source)
  get_filename_component(name ${source} NAME_WE)
  set(cubin ${CMAKE_BINARY_DIR}/cuda/cubin/${name}.cubin)
  # What ptxas says must be there, so no ccache: it would tell only once.
  add_custom_command(OUTPUT ${cubin}
    COMMAND sh -c "\"$@\" >${cubin}.log 2>&1 || { cat ${cubin}.log; exit 1; }" nvcc ${GB_NVCC} -gencode=arch=compute_90a,code=sm_90a
            ${GB_CUDA_DEVICE_FLAGS} -Xptxas -v ${ARGN} -MD -MF ${cubin}.d -cubin ${source} -o ${cubin}
    DEPENDS ${source} DEPFILE ${cubin}.d COMMENT "cubin of ${name}.cu" VERBATIM)
  set(${out} ${cubin} PARENT_SCOPE)
endfunction()

if(GB_NVCC)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda/cubin)
  file(GLOB kernel_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/cuda/kernels/*.cu)
  set(cubins "")
  foreach(source IN LISTS kernel_sources)
    gb_cuda_cubin(cubin ${source} ${GB_CUDA_NO_SPILLS})
    list(APPEND cubins ${cubin})
  endforeach()
  gb_cuda_cubin(calibration ${gates}/calibration.cu)    # uses local memory on purpose
  add_custom_target(cuda_cubins DEPENDS ${cubins} ${calibration})
  add_dependencies(cuda_checks cuda_cubins)

  # A kernel that spills must not build: the gate itself, checked.
  add_test(NAME cuda/gate.spills COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/cuda/must_fail.sh "spill" ${GB_NVCC}
           -gencode=arch=compute_90a,code=sm_90a ${GB_CUDA_DEVICE_FLAGS} ${GB_CUDA_NO_SPILLS} -cubin ${gates}/spill.cu -o ${CMAKE_BINARY_DIR}/cuda/spill.cubin)
  set_tests_properties(cuda/gate.spills PROPERTIES LABELS cuda)
endif()
gb_cuda_gate(resources ${expectations} ${cubins})
gb_cuda_gate(census ${expectations} ${calibration} ${cubins})

# The emulated plugin and the program can be looked at without nvcc.
set(binaries $<TARGET_FILE:gimbal>)
foreach(plugin gimbal_cuemu gimbal_cuda)
  if(TARGET ${plugin})
    list(APPEND binaries $<TARGET_FILE:${plugin}>)
    add_dependencies(cuda_checks ${plugin})
  endif()
endforeach()
add_dependencies(cuda_checks gimbal)
add_test(NAME cuda/gate.links COMMAND ${GB_PYTHON} ${gates}/gates.py links ${binaries})
set_tests_properties(cuda/gate.links PROPERTIES LABELS cuda)
