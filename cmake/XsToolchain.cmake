# Language, warnings, sanitizers, libraries: everything that is the same for every layer.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()

add_library(xs_flags INTERFACE)
target_include_directories(xs_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_options(xs_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 sees overlaps in std::string's operator+ that are not there (GCC bug 105651).
  target_compile_options(xs_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(XSTAGE_WERROR)
  target_compile_options(xs_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(XSTAGE_SANITIZE)
  target_compile_options(xs_flags INTERFACE -fsanitize=${XSTAGE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(xs_flags INTERFACE -fsanitize=${XSTAGE_SANITIZE})
endif()
# One rounding everywhere: a fused multiply-add that one compiler forms and another does not would break
# the bitwise comparisons between ranks, orders and (later) devices.
target_compile_options(xs_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(GTest REQUIRED)
find_path(XXHASH_INCLUDE xxhash.h REQUIRED)
find_library(XSTAGE_NLOPT nlopt REQUIRED)
find_package(Eigen3 REQUIRED)
target_link_libraries(xs_flags INTERFACE Threads::Threads)

if(XSTAGE_ONEDNN)
  # Not find_package(dnnl): Debian's configuration file asks for OpenCL, which nothing here uses.
  find_path(DNNL_INCLUDE oneapi/dnnl/dnnl.h REQUIRED)
  find_library(DNNL_LIBRARY dnnl REQUIRED)
  find_package(OpenMP REQUIRED)
  set(XSTAGE_HOST_PRODUCT ${DNNL_LIBRARY} OpenMP::OpenMP_CXX)
endif()

if(XSTAGE_CUDA)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  # CMake 3.25 does not know that nvcc 13 takes C++20 and would drop or refuse it.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  # -arch=sm_90a fails, the long form works. Without -DNDEBUG ptxas serialises WGMMA (C7510). The register and spill
  # report of -v belongs into every build log.
  string(APPEND CMAKE_CUDA_FLAGS " -gencode=arch=compute_90a,code=sm_90a -DNDEBUG -Xptxas -v")
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  # The driver's own functions are asked for at run time, so that the same program starts where there is no driver.
  set(XSTAGE_CUDA_RUNTIME CUDA::cudart_static)
endif()
