#pragma once

#include "xstage/mem/cuda_check.hpp"
#include "xstage/probe/burst_kernel.hpp"
#include "xstage/tile/store.cuh"

// What the probes' kernels share: a block per SM that stores from a staging buffer into its window.

namespace xs {

// So much shared memory that no second block fits on an SM, staging at its begin.
inline constexpr int kBlockBytes = 120 * 1024;

// Enough threads to store at full rate; one warp where a single thread issues.
constexpr int storing_threads(StorePath path) { return is_asynchronous(path) ? 32 : 256; }

// Called by all threads of the group, once.
template <StorePath path>
__device__ inline void fill_staging(const StoreGroup& group, std::byte* staging) {
  for (int at = group.rank * 4; at < kStagingBytes; at += group.size * 4) {
    *reinterpret_cast<std::uint32_t*>(staging + at) = static_cast<std::uint32_t>(at);
  }
  source_ready<path>(group);
}

// Stores `bytes` from `place` of the worker's window on, which goes round, and moves it behind them. Issued on return,
// for the calling thread.
template <StorePath path>
__device__ inline void store_piece(const StoreGroup& group, const StoreTarget& target, std::int64_t window,
                                   std::int64_t window_bytes, std::int64_t& place, std::int64_t bytes,
                                   const std::byte* staging, int copy_bytes) {
  while (bytes > 0) {
    const std::int64_t room = window_bytes - place;
    const std::int64_t most = bytes < kStagingBytes ? bytes : kStagingBytes;
    const int size = static_cast<int>(room < most ? room : most);
    store<path>(group, target, window + place, staging, size, copy_bytes);
    bytes -= size;
    place = size == room ? 0 : place + size;
  }
}

// One block per SM, all of them resident, so that the kernel may align their start.
template <class Params>
void launch_aligned(void (*kernel)(Params), Params& params, int blocks, int threads, cudaStream_t stream) {
  const auto entry = reinterpret_cast<const void*>(kernel);
  check_cuda(cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize, kBlockBytes),
             "shared memory of a probe");
  void* arguments[] = {&params};
  check_cuda(cudaLaunchCooperativeKernel(entry, dim3(static_cast<unsigned>(blocks)),
                                         dim3(static_cast<unsigned>(threads)), arguments, kBlockBytes, stream),
             "starting a probe");
}

// Calls `launch` with the path as a compile-time constant.
template <StorePath path>
struct PathConstant {
  static constexpr StorePath value = path;
};

template <class Launch>
void with_path(StorePath path, Launch&& launch) {
  switch (path) {
    case StorePath::st16:
      return launch(PathConstant<StorePath::st16>());
    case StorePath::st4:
      return launch(PathConstant<StorePath::st4>());
    case StorePath::bulk:
      return launch(PathConstant<StorePath::bulk>());
    case StorePath::tensor:
      return launch(PathConstant<StorePath::tensor>());
  }
}

}  // namespace xs
