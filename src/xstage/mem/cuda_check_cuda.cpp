#include <fmt/format.h>

#include "xstage/core/error.hpp"
#include "xstage/mem/cuda_check.hpp"

namespace xs {

void check_cuda(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // or the next launch would report it, too
  const bool unavailable = status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver ||
                           status == cudaErrorNoKernelImageForDevice || status == cudaErrorMemoryAllocation ||
                           status == cudaErrorNotPermitted || status == cudaErrorNotSupported ||
                           status == cudaErrorPeerAccessUnsupported || status == cudaErrorInvalidDevice;
  fail(unavailable ? ErrorKind::unavailable : ErrorKind::internal, "{}: CUDA answers {} ({})", what,
       cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace xs
