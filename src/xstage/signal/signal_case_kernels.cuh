#pragma once

#include <cuda/barrier>

#include "xstage/signal/epochs_kernel.cuh"

// The other kernels of signals_device_test.cu.

namespace xs::cases {

// Two ranks of one block each: how long a flag takes to the peer and back.
struct RoundTrips {
  const SignalTable* tables;
  int num_trips;
  std::uint32_t* cycles;  // of every trip
  std::uint64_t* all;     // of all trips: nanoseconds, cycles
};

__global__ void round_trips_kernel(const __grid_constant__ RoundTrips one) {
  DeviceSignals signals(one.tables[blockIdx.x]);
  const int rank = signals.rank(), peer = 1 - rank;
  if (threadIdx.x == 0) {
    const auto begin_ns = nanos();
    const auto begin = clock64();
    for (int trip = 0; trip < one.num_trips; ++trip) {
      const auto start = clock64();
      if (rank == 0) signals.raise(peer, 0);
      if (!signals.wait(0, static_cast<Word>(trip + 1))) break;
      if (rank == 1) signals.raise(peer, 0);
      if (rank == 0) one.cycles[trip] = static_cast<std::uint32_t>(clock64() - start);
    }
    if (rank == 0) {
      one.all[0] = nanos() - begin_ns;
      one.all[1] = static_cast<std::uint64_t>(clock64() - begin);
    }
  }
  signals.close_epoch(1);
}

// A kernel with two roles, one block per rank. Warp 0 stores tiles at the next rank, waits for those of the rank
// before, and hands them over through two stages; warp 1 checks them.
struct Roles {
  const SignalTable* tables;
  std::uint64_t payload;  // region with 32 words per tile
  int num_tiles;
  int drop_rank, drop_tile;   // this raise never happens
  unsigned long long* wrong;  // words
  unsigned long long* ended;  // blocks in which both roles came to the end
};

__global__ void __launch_bounds__(64) roles_kernel(const __grid_constant__ Roles one) {
  using Barrier = cuda::barrier<cuda::thread_scope_block>;
  constexpr int kStages = 2;
  constexpr unsigned kAll = 0xffffffffu;
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ Barrier full[kStages], empty[kStages];
  __shared__ std::uint64_t stages[kStages][32];
  const DeviceRank ranks = one.tables[blockIdx.x].rank;
  DeviceSignals signals(one.tables[blockIdx.x]);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x < kStages) {
    init(&full[threadIdx.x], 32);
    init(&empty[threadIdx.x], 32);
  }
  __syncthreads();
  // Whether the phase of this round of the stage is over.
  const auto is_over = [](Barrier& barrier, int round) {
    return cuda::ptx::mbarrier_try_wait_parity(cuda::device::barrier_native_handle(barrier),
                                               static_cast<std::uint32_t>(round % 2));
  };
  const auto handover = [&](int index, Barrier& barrier, int round) {
    return __all_sync(kAll, signals.handover(index, [&] { return is_over(barrier, round); })) != 0;
  };
  const auto receive = [&] {
    const int rank = ranks.rank, next = (rank + 1) % ranks.num_ranks;
    for (int tile = 0; tile < one.num_tiles; ++tile) {
      ranks.at<std::uint64_t>(next, one.payload)[tile * 32 + lane] = payload_word(signals.epoch(), rank, next, tile);
      __syncwarp();
      if (lane == 0 && !(rank == one.drop_rank && tile == one.drop_tile)) signals.raise(next, 0);
      if (!signals.wait_warp(0, static_cast<Word>(tile + 1))) return;
      const int stage = tile % kStages, round = tile / kStages;
      if (round > 0 && !handover(0, empty[stage], round - 1)) return;
      stages[stage][lane] = ranks.at<std::uint64_t>(rank, one.payload)[tile * 32 + lane];
      (void)full[stage].arrive();
    }
  };
  const auto check = [&] {
    const int rank = ranks.rank, source = (rank + ranks.num_ranks - 1) % ranks.num_ranks;
    for (int tile = 0; tile < one.num_tiles; ++tile) {
      const int stage = tile % kStages, round = tile / kStages;
      if (!handover(1, full[stage], round)) return;
      if (stages[stage][lane] != payload_word(signals.epoch(), source, rank, tile)) atomicAdd(one.wrong, 1ull);
      (void)empty[stage].arrive();
    }
  };
  threadIdx.x < 32 ? receive() : check();
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(one.ended, 1ull);
  signals.close_epoch(1);
}

// Keeps an SM from others by its shared memory.
__global__ void squat_kernel(std::uint64_t ns) { spin(ns); }

}  // namespace xs::cases
