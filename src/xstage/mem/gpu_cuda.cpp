#include "xstage/mem/gpu.hpp"

#include <cudaTypedefs.h>

#include <utility>

#include "xstage/core/error.hpp"
#include "xstage/mem/cuda_check.hpp"
#include "xstage/mem/cuda_driver.hpp"

namespace xs {
namespace {

std::vector<bool> reached_from(int device, int num_devices) {
  std::vector<bool> reaches;
  for (int peer = 0; peer < num_devices; ++peer) {
    int can = 1;
    if (peer != device) check_cuda(cudaDeviceCanAccessPeer(&can, device, peer), "access between GPUs");
    reaches.push_back(can != 0);
  }
  return reaches;
}

}  // namespace

std::vector<GpuInfo> find_gpus() {
  int count = 0;
  check_cuda(cudaGetDeviceCount(&count), "no GPU here");
  // For what the runtime does not tell.
  const auto attribute_of = driver_function<PFN_cuDeviceGetAttribute_v2000>("cuDeviceGetAttribute");
  std::vector<GpuInfo> gpus;
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp of{};
    check_cuda(cudaGetDeviceProperties(&of, device), "properties of a GPU");
    const auto has = [&](CUdevice_attribute attribute) {
      int value = 0;
      return attribute_of(&value, attribute, device) == CUDA_SUCCESS && value != 0;  // an older driver may not know it
    };
    int clock_khz = 0;
    check_cuda(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, device), "clock of a GPU");
    gpus.push_back({device, of.name, of.major, of.minor, of.multiProcessorCount, GigaHertz{clock_khz * 1e-6},
                    of.totalGlobalMem, fmt::format("{:04x}:{:02x}:{:02x}", of.pciDomainID, of.pciBusID, of.pciDeviceID),
                    of.asyncEngineCount, of.cooperativeLaunch != 0,
                    has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
                    has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
                    has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED), reached_from(device, count)});
  }
  return gpus;
}

CudaVersions cuda_versions() {
  CudaVersions versions{};
  check_cuda(cudaRuntimeGetVersion(&versions.runtime), "version of the CUDA runtime");
  check_cuda(cudaDriverGetVersion(&versions.driver), "version of the driver");
  return versions;
}

GpuMemory::GpuMemory(int device, GpuPlace place, std::size_t bytes)
    : device_(device), place_(place), size_(bytes), data_(nullptr) {
  check_cuda(cudaSetDevice(device), "choosing a GPU");
  void* data = nullptr;
  const bool own = place == GpuPlace::own;
  const auto status = own ? cudaMalloc(&data, bytes) : cudaHostAlloc(&data, bytes, cudaHostAllocMapped);
  check_cuda(status, fmt::format("{} bytes of {}", bytes, own ? "GPU memory" : "pinned host memory").c_str());
  data_ = static_cast<std::byte*>(data);
  check_cuda(cudaMemset(data, 0, bytes), "clearing memory");
  check_cuda(cudaDeviceSynchronize(), "clearing memory");
}

GpuMemory::GpuMemory(GpuMemory&& other) noexcept
    : device_(other.device_), place_(other.place_), size_(other.size_), data_(std::exchange(other.data_, nullptr)) {}

GpuMemory& GpuMemory::operator=(GpuMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(place_, other.place_);
  std::swap(size_, other.size_);
  std::swap(data_, other.data_);
  return *this;
}

GpuMemory::~GpuMemory() {
  if (data_ != nullptr) place_ == GpuPlace::own ? cudaFree(data_) : cudaFreeHost(data_);
}

void GpuMemory::read(std::size_t offset, std::span<std::byte> target) const {
  require(offset <= size_ && target.size() <= size_ - offset, "reading {} bytes at {} of a buffer of {}", target.size(),
          offset, size_);
  check_cuda(cudaMemcpy(target.data(), data_ + offset, target.size(), cudaMemcpyDefault), "copy from the GPU");
}

void GpuMemory::write(std::size_t offset, std::span<const std::byte> source) const {
  require(offset <= size_ && source.size() <= size_ - offset, "writing {} bytes at {} of a buffer of {}", source.size(),
          offset, size_);
  check_cuda(cudaMemcpy(data_ + offset, source.data(), source.size(), cudaMemcpyDefault), "copy to the GPU");
}

}  // namespace xs
