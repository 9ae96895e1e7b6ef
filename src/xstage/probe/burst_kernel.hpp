#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "xstage/model/port.hpp"
#include "xstage/tile/store_path.hpp"

// Bursts and gaps by the SMs of a GPU. For host code that calls CUDA.

namespace xs {

// What a worker stores from, again and again; the largest copy of an asynchronous path.
inline constexpr int kStagingBytes = 32768;
inline constexpr int kMostBursts = 1024;

// Where workers store, and how. Each has a window of its own; a burst that is longer goes through it again.
struct StoreWindows {
  StorePath path;
  int copy_bytes;             // of the asynchronous paths: a power of two, from a row of a tensor map to kStagingBytes
  std::byte* base;            // as the GPU sees it
  std::int64_t window_bytes;  // a multiple of kStagingBytes
  int workers;                // that there are windows for
};

struct BurstRecord {  // SM cycles; up to 2 s
  std::uint32_t gap;  // since the burst before was done; 0 of the first
  std::uint32_t issue;
  std::uint32_t done;  // from issued to the awaited completion
};

// The pattern's workers, one per SM, start together and store its bursts (at most kMostBursts, in store units of the
// path). `records` gets those of worker 0, then of worker 1, ...; `sms` the SM of each worker. Both in memory of the
// GPU. On return the kernel is on its way; its bytes are remote visible when it ends.
void launch_bursts(const StoreWindows& windows, const BurstPattern& pattern, BurstRecord* records, std::uint32_t* sms,
                   cudaStream_t stream);

struct ClockRecord {
  std::int64_t cycles, nanos;
};

// One SM's cycles and the GPU's time over two milliseconds.
void launch_clock(ClockRecord* record, cudaStream_t stream);

}  // namespace xs
