#pragma once

#include <string>

#include "xstage/mem/gpu_world.hpp"
#include "xstage/signal/signal_table.hpp"
#include "xstage/signal/signals.hpp"

// The host's side of signals inside kernels (device_signals.cuh): arms the flags, reads why a kernel gave up, resets.

namespace xs {

// The device's record in the words of the host's reports.
WaitReport explain(const WaitRecord& record, const SignalOptions& options);

class GpuSignals {
 public:
  // The region that `num_flags` flags need.
  static RegionId reserve(Layout& layout, int num_flags, int num_ranks);

  // For the ranks of `world` that run here, which must outlive this; what the flags publish may lie elsewhere. Throws
  // Error(usage) where flags would not be atomic (GpuWorld::require_atomics). `region` must be zeroed, all ranks must
  // use the same options. `options.faults` are for ranks of the CPU: kernels under test bring their own.
  GpuSignals(const GpuWorld& world, RegionId region, int num_flags, SignalOptions options);

  // For kernels: on the device, one per rank that runs here, in the order of ranks. Index it by GridPart::part.
  const SignalTable* tables() const;

  // After the kernels that use them have ended. Throws Error(timeout) with the report when a wait of any rank gave up,
  // again and again until reset().
  void throw_if_given_up() const;

  // After an error: collective over all ranks; the ranks that run here come together. Flags, banks and abort words are
  // then as in the beginning, in an epoch that no rank has used. The kernels of these ranks must have ended. Throws
  // Error(timeout) that names the rank which did not come; the ranks must then be started again.
  void reset();

  // The epoch of a rank that runs here. Waits for the device.
  std::uint32_t epoch(int rank) const;

 private:
  LocalWords local(int rank) const;
  const GpuWorld& world_;
  RegionId region_;
  SignalOptions options_;
  GpuMemory memory_;  // LocalWords, then SignalTables, of the ranks that run here
};

}  // namespace xs
