#pragma once

#include <cstdint>

#include "xstage/core/units.hpp"

// Clocks of a GPU, and where a block runs. Called by any thread.

namespace xs {

// Of this SM, whose clock falls under load. Memory accesses of the calling thread stay on their side of it.
__device__ inline std::int64_t sm_cycles() {
  std::int64_t cycles;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
  return cycles;
}

// Of the whole GPU; ticks coarsely, by up to a microsecond.
__device__ inline std::int64_t gpu_nanos() {
  std::int64_t nanos;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanos)::"memory");
  return nanos;
}

__device__ inline std::uint32_t sm_id() {
  std::uint32_t id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
}

// Returns no earlier than sm_cycles() == `at`, and little later: it sleeps for a quarter of what is left at 2 GHz or
// half at 4 GHz (a sleep may last twice as long as asked) and spins through the rest.
__device__ inline void wait_until(std::int64_t at) {
  constexpr std::int64_t kSpin = 400, kMostSleep = 1 << 22;  // cycles
  for (;;) {
    const std::int64_t left = at - sm_cycles();
    if (left <= 0) return;
    if (left > kSpin) __nanosleep(static_cast<unsigned>(left > kMostSleep ? kMostSleep : left) / 8);
  }
}

}  // namespace xs
