#pragma once

#include <functional>
#include <string>
#include <vector>

#include "xstage/core/units.hpp"
#include "xstage/mem/gpu.hpp"
#include "xstage/signal/device_signals.hpp"

namespace xs {

struct GpuSignalOptions {
  Nanos timeout{30e9};  // of one wait; where all ranks meet, a quarter more
  std::function<std::string(int flag)> flag_name = {};
  // Where counters start: tests choose values that soon wrap.
  std::uint32_t first_epoch = 1;
  Word first_arrival = 0;
};

// The flags of ranks that share one GPU: of virtual ranks, which are shares of one grid, or separate launches. Without
// CUDA in the build the constructor throws Error(unavailable).
class GpuSignals {
 public:
  // num_blocks: of every rank's share of the grid.
  GpuSignals(int device, int num_ranks, int num_flags, int num_blocks, GpuSignalOptions options);

  // For a rank's kernels; valid as long as this lives. Throws the report when the flags are poisoned.
  DeviceSignals of(int rank) const;

  // After a launch has ended. Throws Error(timeout) with the report of the wait that expired; from then on the flags
  // are poisoned, until reset().
  void check();

  // No launch may be under way. Flags, banks and abort words are as in the beginning, in an epoch that none has used.
  void reset();

  // Of a rank, as its kernels left it.
  std::uint32_t epoch(int rank) const;

 private:
  void arm(std::uint32_t epoch);
  DeviceControl read_control(int rank) const;
  std::string name_of(const DeviceControl& report) const;

  int num_ranks_, num_flags_, num_blocks_;
  GpuSignalOptions options_;
  std::vector<GpuMemory> regions_;  // [rank]
  GpuMemory bases_;                 // their addresses
  std::string poison_;              // empty: none
};

}  // namespace xs
