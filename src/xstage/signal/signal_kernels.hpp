#pragma once

#include "xstage/signal/signal_table.hpp"

// The kernels of GpuSignals itself. `tables` lie on `device`, one per rank that runs there. Both return when done.

namespace xs {

// Arms zeroed words, or words that faster peers have raised already.
void arm_signals(int device, const SignalTable* tables, int num_tables, std::uint32_t epoch, Word arrival);

// The collective reset. A rank whose peers did not come in time has `missed_reset` set.
void reset_signals(int device, const SignalTable* tables, int num_tables, Word arrival);

}  // namespace xs
