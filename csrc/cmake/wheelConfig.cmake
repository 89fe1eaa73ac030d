# pykernelConfig.cmake of a Python wheel, which holds the static library alone: both targets lead to it.
get_filename_component(_pykernel_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET pykernel::pykernel_static)
  add_library(pykernel::pykernel_static STATIC IMPORTED)
  set_target_properties(pykernel::pykernel_static PROPERTIES
    IMPORTED_LOCATION "${_pykernel_prefix}/lib/libpykernel.a"
    IMPORTED_LINK_INTERFACE_LANGUAGES C
    INTERFACE_INCLUDE_DIRECTORIES "${_pykernel_prefix}/include")
  add_library(pykernel::pykernel INTERFACE IMPORTED)
  set_target_properties(pykernel::pykernel PROPERTIES INTERFACE_LINK_LIBRARIES pykernel::pykernel_static)
endif()
unset(_pykernel_prefix)
