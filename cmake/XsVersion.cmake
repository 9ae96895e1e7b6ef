# version.cpp names the commit. It is written again at each build, and only when it changed, so that
# `xstage --version` never names the commit of the last configure.
set(built_in "threads")
foreach(part ONEDNN CUDA)
  if(XSTAGE_${part})
    string(TOLOWER ${part} lower)
    string(APPEND built_in " ${lower}")
  endif()
endforeach()
if(XSTAGE_SANITIZE)
  string(APPEND built_in " sanitizer:${XSTAGE_SANITIZE}")
endif()
set(version_cpp ${PROJECT_BINARY_DIR}/generated/version.cpp)
add_custom_target(xs_version_file BYPRODUCTS ${version_cpp}
  COMMAND ${CMAKE_COMMAND} -DOUT=${version_cpp} -DSOURCE=${PROJECT_SOURCE_DIR} -DVERSION=${PROJECT_VERSION}
          "-DBUILT_IN=${built_in}" -P ${PROJECT_SOURCE_DIR}/cmake/write_version.cmake)
target_sources(xs_core PRIVATE ${version_cpp})
add_dependencies(xs_core xs_version_file)
