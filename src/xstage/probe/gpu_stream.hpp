#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "xstage/mem/gpu.hpp"

// For host code that calls CUDA: work of a probe on one GPU.

namespace xs {

// A stream that nothing else waits for.
class GpuStream {
 public:
  explicit GpuStream(int device);
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  ~GpuStream();

  cudaStream_t get() const { return stream_; }
  // Until all work so far is done. Throws Error(timeout) after 30 s, whatever the GPU does.
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
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// Of an SM under a light load: cycles over the GPU's own time, once it has stopped rising.
GigaHertz measure_clock(int device, const GpuStream& stream);

// The GPU with this number. Throws Error(usage) that says how many there are, Error(unavailable) if none.
GpuInfo gpu_info(int device);

// `count` records in `memory`.
template <class Record>
std::vector<Record> read_records(const GpuMemory& memory, std::size_t count) {
  std::vector<Record> records(count);
  memory.read(0, std::as_writable_bytes(std::span(records)));
  return records;
}

}  // namespace xs
