#include "xstage/core/error.hpp"
#include "xstage/mem/cuda_check.hpp"
#include "xstage/mem/gpu_world.hpp"

namespace xs {

void GpuWorld::copy(void* target, const void* source, std::size_t bytes) const {
  check_cuda(cudaSetDevice(device_), "choosing a GPU");
  check_cuda(cudaMemcpy(target, source, bytes, cudaMemcpyDefault), "copy between host and GPU");
}

void GpuWorld::require_atomics() const {
  for (int rank = 0; rank < num_ranks(); ++rank) {
    cudaPointerAttributes of{};
    check_cuda(cudaPointerGetAttributes(&of, parts_[static_cast<std::size_t>(rank)]), "asking where a part lies");
    const bool on_host = of.type == cudaMemoryTypeHost;
    if (!on_host && of.device == device_) continue;
    int native = 0;
    check_cuda(on_host ? cudaDeviceGetAttribute(&native, cudaDevAttrHostNativeAtomicSupported, device_)
                       : cudaDeviceGetP2PAttribute(&native, cudaDevP2PAttrNativeAtomicSupported, device_, of.device),
               "asking for atomics");
    require(native != 0,
            "rank {}: its part lies {}, where what GPU {} adds is not atomic; keep flags in GPU memory that NVLink "
            "reaches",
            rank, on_host ? "in host memory" : fmt::format("on GPU {}", of.device), device_);
  }
}

}  // namespace xs
