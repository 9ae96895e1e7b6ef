#pragma once

#include "xstage/tile/pacer.hpp"
#include "xstage/tile/sm_clock.cuh"

namespace xs {

// A pacer in this SM's time. On the SM's clock, which is finer than the GPU's; `clock` is the highest that it runs at,
// so under load a share drains more slowly than the plan says, never faster.
//
// Called by one thread, on one SM. Orders nothing.
class SmPacer {
 public:
  // `outstanding`: what counts as stored before the first burst. Workers that divide a port and store equal bursts
  // keep from storing all at once by beginning with different amounts.
  __device__ SmPacer(const BucketRates& share, GigaHertz clock, Bytes outstanding = {})
      : period_(Cycles{1} / clock), clock_(clock), pacer_(share, now()) {
    pacer_.begin(outstanding, now());
  }

  // Before a burst; the worker's group waits for the calling thread at the barrier of store(). Guarantees on return:
  // the burst is within the share and counted. Bounded by capacity / drain of the share.
  __device__ void pace(Bytes bytes) {
    const Nanos asked = now(), wait = pacer_.wait(bytes, asked);
    if (wait > Nanos{0}) wait_until(static_cast<std::int64_t>(((asked + wait) * clock_).value) + 1);
    pacer_.begin(bytes, now());
  }

  __device__ Nanos now() const { return period_ * static_cast<double>(sm_cycles()); }

 private:
  Nanos period_;
  GigaHertz clock_;
  Pacer pacer_;
};

}  // namespace xs
