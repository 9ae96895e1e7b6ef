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

// Returns no earlier than sm_cycles() == `at`, and little later: it sleeps for half of what is left (a sleep may last
// twice as long as asked) and spins through the rest. `clock`: an SM's, at most.
__device__ inline void wait_until(std::int64_t at, GigaHertz clock) {
  constexpr unsigned kSpin = 200, kMostSleep = 1000000;  // ns
  for (;;) {
    const std::int64_t left = at - sm_cycles();
    if (left <= 0) return;
    const double nanos = (Cycles{static_cast<double>(left)} / clock).value;
    if (nanos > kSpin) __nanosleep(nanos > kMostSleep ? kMostSleep : static_cast<unsigned>(nanos) / 2);
  }
}

}  // namespace xs
