# Small data files travel inside the program, so that a copied binary still knows its models and profiles.
file(GLOB embedded CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/profiles/*.json ${PROJECT_SOURCE_DIR}/data/*_models.csv)
set(embedded_cpp ${PROJECT_BINARY_DIR}/generated/embedded.cpp)
add_custom_command(OUTPUT ${embedded_cpp} DEPENDS ${embedded} ${PROJECT_SOURCE_DIR}/cmake/write_embedded.cmake
  COMMAND ${CMAKE_COMMAND} -DOUT=${embedded_cpp} "-DFILES=${embedded}"
          -P ${PROJECT_SOURCE_DIR}/cmake/write_embedded.cmake VERBATIM)
target_sources(xs_core PRIVATE ${embedded_cpp})
