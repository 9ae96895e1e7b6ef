#include "xstage/mem/gpu.hpp"

#include "xstage/core/error.hpp"

namespace xs {

GpuInfo gpu_info(int device) {
  const auto gpus = find_gpus();
  require(device >= 0 && static_cast<std::size_t>(device) < gpus.size(), "GPU {}: this machine has {}", device,
          gpus.size());
  return gpus[static_cast<std::size_t>(device)];
}

}  // namespace xs
