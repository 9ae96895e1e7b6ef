#include "xstage/signal/gpu_signals.hpp"

namespace xs {

// Never made: the memory's constructor throws Error(unavailable).
GpuSignals::GpuSignals(int device, int num_ranks, int num_flags, int num_blocks, GpuSignalOptions options)
    : num_ranks_(num_ranks),
      num_flags_(num_flags),
      num_blocks_(num_blocks),
      options_(std::move(options)),
      bases_(device, GpuPlace::own, 0) {}
DeviceSignals GpuSignals::of(int) const { return {}; }
void GpuSignals::check() {}
void GpuSignals::reset() {}
std::uint32_t GpuSignals::epoch(int) const { return 0; }

}  // namespace xs
