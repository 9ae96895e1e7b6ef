#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "xstage/core/units.hpp"

// The GPUs of this machine and their memory. Without CUDA in the build everything here throws Error(unavailable).

namespace xs {

struct GpuInfo {
  int device;
  std::string name;
  int compute_major, compute_minor;
  int num_sms;
  GigaHertz clock;  // the highest of an SM
  std::size_t memory_bytes;
  std::string pci_bus;
  int copy_engines;
  bool cooperative_launch;
  // Memory mapped by hand (cuMemMap): at all, shared through file descriptors, shared through handles that are good on
  // every machine of an NVLink fabric. The last needs a fabric manager too, which only an allocation can tell.
  bool virtual_memory, posix_handles, fabric_handles;
  std::vector<bool> reaches;  // by device number: whether its kernels can be given the memory of that GPU
};

// All that CUDA sees, by device number. Throws Error(unavailable), one sentence, when it sees none.
std::vector<GpuInfo> find_gpus();
// The one with this number. Throws Error(usage) that says how many there are.
GpuInfo gpu_info(int device);

// As CUDA counts: 13000 is 13.0.
struct CudaVersions {
  int runtime;  // in this program
  int driver;   // the newest that the driver takes; 0 without a driver
};
CudaVersions cuda_versions();

// Where a buffer lies, as kernels of `device` see it.
enum class GpuPlace {
  own,  // in the memory of `device`
  far,  // in pinned memory of the host, mapped: behind PCIe, it stands in for a peer
};

// Zeroed memory that kernels of a GPU reach. One virtual address for host and device.
class GpuMemory {
 public:
  // Throws Error(unavailable) that names the bytes when there are not as many.
  GpuMemory(int device, GpuPlace place, std::size_t bytes);
  GpuMemory(GpuMemory&& other) noexcept;
  GpuMemory& operator=(GpuMemory&& other) noexcept;
  ~GpuMemory();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  GpuPlace place() const { return place_; }

  // Wait for the device. Throw Error(usage) when the range is not inside.
  void read(std::size_t offset, std::span<std::byte> target) const;
  void write(std::size_t offset, std::span<const std::byte> source) const;

 private:
  int device_;
  GpuPlace place_;
  std::size_t size_;
  std::byte* data_;
};

}  // namespace xs
