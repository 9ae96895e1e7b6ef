#pragma once

#include "xstage/core/bucket.hpp"
#include "xstage/probe/burst_kernel.hpp"

// What other SMs lose while some store without a pause. For host code that calls CUDA.

namespace xs {

// `windows.workers` SMs store, `loaders` others load, all for `duration` from a common start.
struct NeighbourRun {
  StoreWindows windows;  // of as many workers as may store
  int storers;
  int loaders;
  const std::byte* operands;  // each loader goes through them, from a place of its own
  std::int64_t operand_bytes;
  int piece_bytes;  // between two looks at the pacer; in store units
  bool paced;
  BucketRates share;  // of one storer
  GigaHertz clock;    // of an SM, at most
  Nanos duration;
};

struct NeighbourRecord {
  std::int64_t bytes;
  std::int64_t nanos;  // until its stores were remote visible, its loads there
};

// `records` in memory of the GPU, the storers' first; zeroed by the caller.
void launch_neighbours(const NeighbourRun& run, NeighbourRecord* records, cudaStream_t stream);

}  // namespace xs
