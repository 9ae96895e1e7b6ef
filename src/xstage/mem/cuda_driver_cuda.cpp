#include <fmt/format.h>

#include "xstage/core/error.hpp"
#include "xstage/mem/cuda_check.hpp"
#include "xstage/mem/cuda_driver.hpp"

namespace xs {

void* find_driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const auto status = cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
  check_cuda(status, fmt::format("looking up {} in the driver", name).c_str());
  if (found != cudaDriverEntryPointSuccess || function == nullptr) {
    fail(ErrorKind::unavailable, "the driver of this machine has no {}; CUDA 12.0 or newer is needed", name);
  }
  return function;
}

}  // namespace xs
