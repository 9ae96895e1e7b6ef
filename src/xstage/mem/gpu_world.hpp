#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "xstage/mem/device_rank.hpp"
#include "xstage/mem/gpu.hpp"
#include "xstage/mem/layout.hpp"

// Ranks whose symmetric parts kernels reach. Same layout as a World's; what a host does by put(), a kernel does by
// stores at DeviceRank::at().

namespace xs {

class GpuWorld {
 public:
  // Virtual ranks of one GPU, each with a zeroed part of its own in `receive`. A kernel serves all of them: see
  // GridPart.
  GpuWorld(Layout layout, int num_ranks, int device, GpuPlace receive);
  // One rank, on `device`. parts[i]: where rank i's part of layout.total_bytes() begins as `device` reaches it; a peer
  // GPU's memory, another process's. They must have been zeroed before any rank runs, and outlive this.
  GpuWorld(Layout layout, std::vector<std::byte*> parts, int rank, int device);

  int num_ranks() const { return static_cast<int>(parts_.size()); }
  int device() const { return device_; }
  const Layout& layout() const { return layout_; }
  // The ranks that run here: all of them, or the one.
  int first_rank() const { return first_rank_; }
  int num_own_ranks() const { return own_.empty() ? 1 : num_ranks(); }
  DeviceRank rank(int rank) const;
  // A rank's region as device() reaches it.
  std::byte* at(int rank, RegionId region) const;

  // Throws Error(usage) that names a rank in whose part what kernels of device() add is not atomic to others: memory
  // behind PCIe.
  void require_atomics() const;

  // Between host memory and a rank's region, for set-up and tests. Wait for the device; throw Error(usage) when the
  // bytes do not fit.
  void read(int rank, RegionId region, std::size_t offset, std::span<std::byte> target) const;
  void write(int rank, RegionId region, std::size_t offset, std::span<const std::byte> source) const;

 private:
  std::byte* place(int rank, RegionId region, std::size_t offset, std::size_t bytes) const;
  void fill_table();
  void copy(void* target, const void* source, std::size_t bytes) const;
  Layout layout_;
  int device_;
  int first_rank_;
  std::vector<GpuMemory> own_;  // parts made here
  std::vector<std::byte*> parts_;
  GpuMemory table_;  // parts_, for kernels
};

}  // namespace xs
