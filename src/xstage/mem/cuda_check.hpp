#pragma once

#include <cuda_runtime.h>

namespace xs {

// Throws Error: `unavailable` where there is no GPU, no driver for this program or no memory, else `internal`. The text
// says what was tried and what CUDA answered. Free of fmt, which nvcc cannot compile: kernels' launchers use it too.
void check_cuda(cudaError_t status, const char* what);

}  // namespace xs
