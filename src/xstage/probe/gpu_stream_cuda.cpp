#include <cmath>
#include <thread>

#include "xstage/core/error.hpp"
#include "xstage/mem/cuda_check.hpp"
#include "xstage/probe/burst_kernel.hpp"
#include "xstage/probe/gpu_stream.hpp"

namespace xs {

GpuStream::GpuStream(int device) {
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
  constexpr std::chrono::seconds kBound(30);
  const auto begin = Clock::now();
  for (;;) {
    const auto status = cudaStreamQuery(stream_);
    if (status == cudaSuccess) return;
    if (status != cudaErrorNotReady) check_cuda(status, "a probe on the GPU");
    if (Clock::now() - begin > kBound) fail(ErrorKind::timeout, "a probe on the GPU did not end within 30 s");
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

GigaHertz measure_clock(int device, const GpuStream& stream) {
  constexpr int kMost = 50;
  const GpuMemory record(device, GpuPlace::own, sizeof(ClockRecord));
  GigaHertz clock{0};
  for (int i = 0; i < kMost; ++i) {
    launch_clock(reinterpret_cast<ClockRecord*>(record.data()), stream.get());
    stream.finish();
    const auto ticks = read_records<ClockRecord>(record, 1).front();
    const auto before = clock;
    clock = {static_cast<double>(ticks.cycles) / static_cast<double>(ticks.nanos)};
    if (std::abs(clock / before - 1) < 0.003) break;
  }
  return clock;
}

GpuInfo gpu_info(int device) {
  const auto gpus = find_gpus();
  require(device >= 0 && static_cast<std::size_t>(device) < gpus.size(), "GPU {}: this machine has {}", device,
          gpus.size());
  return gpus[static_cast<std::size_t>(device)];
}

}  // namespace xs
