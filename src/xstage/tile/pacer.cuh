#pragma once

#include "xstage/tile/pacer.hpp"
#include "xstage/tile/sm_clock.cuh"

namespace xs {

// This SM's time as a pacer takes it. On the SM's clock, which is finer than the GPU's; `clock` is the highest that it
// runs at, so under load a share drains more slowly than the plan says, never faster.
__device__ inline Nanos paced_now(GigaHertz clock) { return Cycles{static_cast<double>(sm_cycles())} / clock; }

// Called by: one thread, before the burst; its group waits for it at the barrier of store(). Needs: a pacer of this SM
// and worker alone. Guarantees on return: the burst is within the share and counted. Orders nothing. Bounded by
// capacity / drain of the share. Cost: not measured.
__device__ inline void pace(Pacer& pacer, Bytes bytes, GigaHertz clock) {
  const Nanos now = paced_now(clock);
  const Nanos at = now + pacer.wait(bytes, now);
  if (now < at) wait_until(static_cast<std::int64_t>((at * clock).value) + 1, clock);
  pacer.begin(bytes, paced_now(clock));
}

}  // namespace xs
