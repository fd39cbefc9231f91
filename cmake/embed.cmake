# gb_embed(TARGET HEADER FILE...): compiles files into TARGET as the table gb_embedded_files declared in HEADER.
# Names are paths from the source root ("lua/policies/gimbal.lua").
function(gb_embed target header)
  set(output ${CMAKE_BINARY_DIR}/generated/${target}_embedded.c)
  string(REPLACE ";" "\n" listing "${ARGN}")
  file(CONFIGURE OUTPUT ${output}.list CONTENT "${listing}" @ONLY)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DLIST=${output}.list -DOUTPUT=${output} -DHEADER=${header} -DROOT=${CMAKE_SOURCE_DIR}
            -P ${CMAKE_SOURCE_DIR}/cmake/embed_files.cmake
    DEPENDS ${ARGN} ${output}.list ${CMAKE_SOURCE_DIR}/cmake/embed_files.cmake
    VERBATIM)
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL "INTERFACE_LIBRARY")
    target_sources(${target} PRIVATE ${output})
  endif()
endfunction()
