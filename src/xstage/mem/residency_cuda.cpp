#include "xstage/mem/cuda_check.hpp"
#include "xstage/mem/residency.hpp"

namespace xs {

Residency residency_of(int device, const void* kernel, std::string name, int num_blocks, int threads,
                       std::size_t shared_bytes) {
  check_cuda(cudaSetDevice(device), "choosing a GPU");
  Residency grid{std::move(name), num_blocks, threads, shared_bytes, 0, 0};
  check_cuda(cudaDeviceGetAttribute(&grid.num_sms, cudaDevAttrMultiProcessorCount, device), "number of SMs");
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
             "shared memory of a kernel");
  check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&grid.blocks_per_sm, kernel, threads, shared_bytes),
             "blocks that fit on an SM");
  return grid;
}

}  // namespace xs
