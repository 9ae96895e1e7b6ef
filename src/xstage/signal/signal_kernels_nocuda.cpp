#include "xstage/core/error.hpp"
#include "xstage/signal/signal_kernels.hpp"

namespace xs {

// Never called: no GpuWorld is made without CUDA.
void arm_signals(int, const SignalTable*, int, std::uint32_t, Word) { check(false, "signals of a GPU without CUDA"); }
void reset_signals(int, const SignalTable*, int, Word) { check(false, "signals of a GPU without CUDA"); }

}  // namespace xs
