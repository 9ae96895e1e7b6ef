#pragma once

#include <cuda_runtime.h>

#include "xstage/core/units.hpp"

// For host code that calls CUDA.

namespace xs {

// A stream of one GPU that nothing else waits for.
class GpuStream {
 public:
  // `bound`: how long finish() waits; longer than what runs takes to give up by itself.
  explicit GpuStream(int device, Nanos bound = {30e9});
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  ~GpuStream();

  cudaStream_t get() const { return stream_; }
  // Until all work so far is done. Throws Error(timeout) after the bound, whatever the GPU does.
  void finish() const;
  // Time on the GPU of what `work` puts into the stream; waits for it.
  template <class Work>
  Nanos time(Work&& work) const {
    start_timer();
    work();
    return stop_timer();
  }

 private:
  void start_timer() const;
  Nanos stop_timer() const;
  Nanos bound_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace xs
