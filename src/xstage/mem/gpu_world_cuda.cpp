#include "xstage/mem/cuda_check.hpp"
#include "xstage/mem/gpu_world.hpp"

namespace xs {

void GpuWorld::copy(void* target, const void* source, std::size_t bytes) const {
  check_cuda(cudaSetDevice(device_), "choosing a GPU");
  check_cuda(cudaMemcpy(target, source, bytes, cudaMemcpyDefault), "copy between host and GPU");
}

GpuResidency find_residency(int device, const void* kernel, int threads, std::size_t shared_bytes) {
  check_cuda(cudaSetDevice(device), "choosing a GPU");
  GpuResidency found{};
  check_cuda(cudaDeviceGetAttribute(&found.num_sms, cudaDevAttrMultiProcessorCount, device), "SMs of a GPU");
  check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&found.blocks_per_sm, kernel, threads, shared_bytes),
             "blocks of a kernel per SM");
  return found;
}

}  // namespace xs
