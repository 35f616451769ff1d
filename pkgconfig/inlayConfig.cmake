# SPDX-License-Identifier: BSD-3-Clause
# find_package(inlay), then target_link_libraries(program inlay::inlay): the headers' folder, libibverbs and libmlx5.

if(NOT TARGET inlay::inlay)
  get_filename_component(_inlay_include "${CMAKE_CURRENT_LIST_DIR}/../../../include" ABSOLUTE)
  add_library(inlay::inlay INTERFACE IMPORTED)
  set_target_properties(inlay::inlay PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${_inlay_include}"
    INTERFACE_LINK_LIBRARIES "ibverbs;mlx5")
  unset(_inlay_include)
endif()
