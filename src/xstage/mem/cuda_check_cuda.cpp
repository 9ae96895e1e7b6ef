#include <fmt/format.h>

#include "xstage/core/error.hpp"
#include "xstage/mem/cuda_check.hpp"

namespace xs {

void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  const bool unavailable = status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver ||
                           status == cudaErrorNoKernelImageForDevice || status == cudaErrorMemoryAllocation;
  fail(unavailable ? ErrorKind::unavailable : ErrorKind::internal, "{}: CUDA answers {} ({})", what,
       cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace xs
