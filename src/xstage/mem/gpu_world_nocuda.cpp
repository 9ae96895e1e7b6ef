#include "xstage/core/error.hpp"
#include "xstage/mem/gpu_world.hpp"

namespace xs {

// Never called: no GpuWorld is made without GpuMemory.
void GpuWorld::copy(void*, const void*, std::size_t) const { check(false, "a world of GPUs without CUDA"); }
void GpuWorld::require_atomics() const { check(false, "a world of GPUs without CUDA"); }

}  // namespace xs
