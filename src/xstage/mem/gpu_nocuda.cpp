#include <utility>

#include "xstage/core/error.hpp"
#include "xstage/mem/gpu.hpp"
#include "xstage/mem/residency.hpp"

namespace xs {
namespace {

[[noreturn]] void none() {
  fail(ErrorKind::unavailable, "this build has no CUDA; `./xs build cuda` makes one that has");
}

}  // namespace

std::vector<GpuInfo> find_gpus() { none(); }
CudaVersions cuda_versions() { none(); }
Residency residency_of(int, const void*, std::string, int, int, std::size_t) { none(); }

// Never made: the only constructor throws.
GpuMemory::GpuMemory(int, GpuPlace, std::size_t) { none(); }
GpuMemory::GpuMemory(GpuMemory&&) noexcept = default;
GpuMemory& GpuMemory::operator=(GpuMemory&&) noexcept = default;
GpuMemory::~GpuMemory() = default;
void GpuMemory::read(std::size_t, std::span<std::byte>) const { none(); }
void GpuMemory::write(std::size_t, std::span<const std::byte>) const { none(); }

}  // namespace xs
