#include "xstage/mem/gpu_stream.hpp"

#include <chrono>
#include <thread>

#include "xstage/core/error.hpp"
#include "xstage/mem/cuda_check.hpp"

namespace xs {

GpuStream::GpuStream(int device, Nanos bound) : bound_(bound) {
  check_cuda(cudaSetDevice(device), "choosing a GPU");
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  check_cuda(cudaEventCreate(&begin_), "making an event");
  check_cuda(cudaEventCreate(&end_), "making an event");
}

GpuStream::~GpuStream() {
  cudaEventDestroy(begin_);
  cudaEventDestroy(end_);
  cudaStreamDestroy(stream_);
}

void GpuStream::finish() const {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  for (;;) {
    const auto status = cudaStreamQuery(stream_);
    if (status == cudaSuccess) return;
    if (status != cudaErrorNotReady) check_cuda(status, "work on the GPU");
    const std::chrono::duration<double, std::nano> waited = Clock::now() - begin;
    if (waited.count() > bound_.value) {
      fail(ErrorKind::timeout, "work on the GPU did not end within {:.0f} s", bound_.value * 1e-9);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

void GpuStream::start_timer() const { check_cuda(cudaEventRecord(begin_, stream_), "recording an event"); }

Nanos GpuStream::stop_timer() const {
  check_cuda(cudaEventRecord(end_, stream_), "recording an event");
  finish();
  float millis = 0;
  check_cuda(cudaEventElapsedTime(&millis, begin_, end_), "reading events");
  return {millis * 1e6};
}

}  // namespace xs
