#pragma once

#include "xstage/signal/device_signals.cuh"

// Kernels that exchange payload under flags, for the tests of flags on a GPU.

namespace xs {

constexpr int kMostRanks = 8;
constexpr int kThreads = 128;
constexpr int kWords = 4 * kThreads;  // a block's payload for one peer

struct ExchangeParams {
  DeviceSignals signals[kMostRanks];
  std::uint64_t* received[kMostRanks];  // [source][block][kWords] of each rank
  int first_rank;                       // of this launch
  int num_epochs;
  std::uint64_t seed;
  std::uint32_t max_delay_ns;        // before every step; 0: none
  std::int64_t late_ns[kMostRanks];  // before the first
  int drop_rank, drop_epoch;         // that rank's raises to its right neighbour in that epoch never happen; -1
  unsigned long long* wrong;         // payload words that were not of their epoch
  unsigned long long* gave_up;       // blocks
};

__device__ void linger(std::int64_t ns) {
  const std::int64_t begin = device::now_ns();
  while (device::now_ns() - begin < ns) __nanosleep(200);
}

__device__ std::uint64_t payload(std::uint32_t epoch, int source, int block, int word) {
  return (std::uint64_t{epoch} << 32) ^ (static_cast<std::uint64_t>(source) << 28) ^
         (static_cast<std::uint64_t>(block) << 16) ^ static_cast<std::uint64_t>(word);
}

// All blocks of all ranks write to all ranks, raise one flag for each block there, wait for their own, and look.
__global__ void exchange(const __grid_constant__ ExchangeParams p) {
  const int num_blocks = p.signals[0].num_blocks;
  const int rank = p.first_rank + static_cast<int>(blockIdx.x) / num_blocks;
  const int block = static_cast<int>(blockIdx.x) % num_blocks;
  const DeviceSignals& signals = p.signals[rank];
  const int num_ranks = signals.num_ranks;
  const bool leads = threadIdx.x == 0;
  std::uint64_t state = p.seed * 1'000'003 + blockIdx.x;
  const auto delay = [&] {
    if (p.max_delay_ns == 0) return;
    state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's
    linger(static_cast<std::int64_t>((state >> 33) % p.max_delay_ns));
  };
  if (leads) linger(p.late_ns[rank]);
  for (int i = 0; i < p.num_epochs; ++i) {
    __syncthreads();  // the epoch's word has been advanced
    const std::uint32_t epoch = device::epoch(signals);
    for (int step = 1; step <= num_ranks; ++step) {
      const int peer = (rank + step) % num_ranks;
      if (leads) delay();
      std::uint64_t* const target = p.received[peer] + (std::int64_t{rank} * num_blocks + block) * kWords;
      for (int word = static_cast<int>(threadIdx.x); word < kWords; word += kThreads) {
        target[word] = payload(epoch, rank, block, word);
      }
      __syncthreads();  // all writers have arrived
      const bool dropped = rank == p.drop_rank && i == p.drop_epoch && step == 1;
      if (leads && !dropped) device::raise(signals, epoch, peer, block, 1);
    }
    bool reached = true;
    if (leads) {
      delay();
      reached = device::wait(signals, epoch, block, num_ranks);
    }
    if (!__syncthreads_and(reached)) break;
    for (int source = 0; source < num_ranks; ++source) {
      const std::uint64_t* const own = p.received[rank] + (std::int64_t{source} * num_blocks + block) * kWords;
      for (int word = static_cast<int>(threadIdx.x); word < kWords; word += kThreads) {
        if (own[word] != payload(epoch, source, block, word)) atomicAdd(p.wrong, 1ull);
      }
    }
    __syncthreads();  // all have read
    if (leads) {
      delay();
      reached = device::close_epoch(signals, epoch, block);
    }
    if (!__syncthreads_and(reached)) {
      if (leads) atomicAdd(p.gave_up, 1ull);
      return;
    }
    if (i + 1 == p.num_epochs) return;
  }
  if (leads && p.num_epochs > 0) atomicAdd(p.gave_up, 1ull);
}

// Two roles of one block, which meet at a named barrier in every step as a producer and a consumer warp would; both
// must come out when either gives up.
__global__ void two_roles(const DeviceSignals signals, int num_steps, unsigned long long* came_out) {
  const std::uint32_t epoch = device::epoch(signals);
  const bool produces = threadIdx.x < 32;
  for (int step = 0; step < num_steps; ++step) {
    bool reached = true;
    if (produces && threadIdx.x == 0) reached = device::wait(signals, epoch, 0, step + 1);  // nobody raises
    if (!produces && threadIdx.x == 32) reached = device::wait(signals, epoch, 1, step + 1);
    if (!__syncthreads_and(reached)) break;
  }
  if (threadIdx.x % 32 == 0) atomicAdd(came_out, 1ull);
}

struct PingPongParams {
  DeviceSignals ranks[2];
  int num_rounds;
  std::int64_t* ns;  // of all rounds; -1: gave up
};

// A block each, of one grid.
__global__ void ping_pong(const __grid_constant__ PingPongParams p) {
  if (threadIdx.x != 0) return;
  const DeviceSignals& own = p.ranks[blockIdx.x];
  const int peer = 1 - own.rank;
  const std::uint32_t epoch = device::epoch(own);
  const std::int64_t begin = device::now_ns();
  bool reached = true;
  for (int round = 1; round <= p.num_rounds && reached; ++round) {
    if (own.rank == 0) device::raise(own, epoch, peer, 0, 1);
    reached = device::wait(own, epoch, 0, round);
    if (own.rank == 1) device::raise(own, epoch, peer, 0, 1);
  }
  if (own.rank == 0) *p.ns = reached ? device::now_ns() - begin : -1;
}

__global__ void squat(std::int64_t ns) { linger(ns); }

}  // namespace xs
