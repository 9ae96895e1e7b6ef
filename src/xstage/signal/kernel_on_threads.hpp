#pragma once

#include <sched.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

// Kernels of this folder on threads of the CPU, so that tests and ThreadSanitizer see them on machines without a GPU.
// What a host compiler needs in the place of CUDA's headers, as far as device_signals.cuh uses it: a thread per thread
// of the grid, a barrier per block. Scopes are all the same here.

#define __device__
#define __global__
#define __grid_constant__
#define __launch_bounds__(threads)

namespace cuda {

enum thread_scope { thread_scope_system, thread_scope_device, thread_scope_block };
inline constexpr auto memory_order_relaxed = std::memory_order_relaxed;
inline constexpr auto memory_order_acquire = std::memory_order_acquire;
inline constexpr auto memory_order_release = std::memory_order_release;
inline constexpr auto memory_order_acq_rel = std::memory_order_acq_rel;

template <class T, thread_scope>
struct atomic_ref : std::atomic_ref<T> {
  using std::atomic_ref<T>::atomic_ref;
};

namespace ptx {

// Who asks for the time is waiting, and there are fewer cores than threads.
inline std::uint64_t get_sreg_globaltimer() {
  ::sched_yield();
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

}  // namespace ptx
}  // namespace cuda

namespace xs::on_threads {

struct Dimension {
  unsigned x;
};

// A block's barrier, and its votes: of this barrier and of the next, so that one is counted while the other is cleared.
struct Block {
  explicit Block(int num_threads) : barrier(num_threads) {}
  std::barrier<> barrier;
  std::atomic<unsigned> votes[2] = {0, 0};
};

inline thread_local Block* block = nullptr;
inline thread_local unsigned num_votes = 0;

}  // namespace xs::on_threads

inline thread_local xs::on_threads::Dimension threadIdx, blockIdx;
inline xs::on_threads::Dimension blockDim, gridDim;

inline void __syncthreads() { xs::on_threads::block->barrier.arrive_and_wait(); }

// How many threads of the block voted for it.
inline unsigned __syncthreads_count(bool vote) {
  auto& votes = xs::on_threads::block->votes[xs::on_threads::num_votes++ % 2];
  if (vote) ++votes;
  __syncthreads();
  const unsigned sum = votes;
  __syncthreads();
  if (threadIdx.x == 0) votes = 0;
  return sum;
}
inline bool __syncthreads_or(bool vote) { return __syncthreads_count(vote) > 0; }
inline bool __syncthreads_and(bool vote) { return __syncthreads_count(vote) == blockDim.x; }

// A warp is a single thread here.
inline void __syncwarp() {}
inline bool __all_sync(unsigned, bool vote) { return vote; }

inline void atomicAdd(unsigned long long* word, unsigned long long amount) { std::atomic_ref(*word) += amount; }

namespace xs::on_threads {

template <class Kernel>
void run_grid(int num_blocks, int threads_per_block, const Kernel& kernel) {
  gridDim = {static_cast<unsigned>(num_blocks)};
  blockDim = {static_cast<unsigned>(threads_per_block)};
  std::vector<std::unique_ptr<Block>> blocks;
  for (int i = 0; i < num_blocks; ++i) blocks.push_back(std::make_unique<Block>(threads_per_block));
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < gridDim.x; ++i) {
    for (unsigned thread = 0; thread < blockDim.x; ++thread) {
      threads.emplace_back([&, i, thread] {
        block = blocks[i].get();
        blockIdx = {i};
        threadIdx = {thread};
        kernel();
      });
    }
  }
}

}  // namespace xs::on_threads
