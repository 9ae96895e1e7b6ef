#pragma once

#include <cstddef>
#include <string>

namespace xs {

// A grid whose blocks wait for each other, and what a GPU can hold of it at once.
struct Residency {
  std::string kernel;
  int num_blocks;
  int threads;               // of a block
  std::size_t shared_bytes;  // of a block, dynamic
  int num_sms;
  int blocks_per_sm;  // that fit; 0: a block needs more than an SM has
};

// Allows the kernel so much shared memory, too: until it may have it, none of its blocks fits. Throws
// Error(unavailable) without CUDA in the build.
Residency residency_of(int device, const void* kernel, std::string name, int num_blocks, int threads,
                       std::size_t shared_bytes);

// Throws Error(usage) with the numbers unless all blocks can be resident: those that are not would be waited for by
// those that are, for ever.
void require_resident(const Residency& grid);

}  // namespace xs
