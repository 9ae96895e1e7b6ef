#pragma once

#include <cuda_runtime.h>

namespace xs {

// Throws Error: `unavailable` where there is no such GPU, no driver for this program, no memory, or no support or
// permission for what was tried, else `internal`. The text says what was tried and what CUDA answered, which later
// calls do not report again. Free of fmt, which nvcc cannot compile: kernels' launchers use it too.
void check_cuda(cudaError_t status, const char* what);

}  // namespace xs
