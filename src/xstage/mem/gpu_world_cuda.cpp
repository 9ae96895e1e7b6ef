#include "xstage/mem/cuda_check.hpp"
#include "xstage/mem/gpu_world.hpp"

namespace xs {

void GpuWorld::copy(void* target, const void* source, std::size_t bytes) const {
  check_cuda(cudaSetDevice(device_), "choosing a GPU");
  check_cuda(cudaMemcpy(target, source, bytes, cudaMemcpyDefault), "copy between host and GPU");
}

}  // namespace xs
