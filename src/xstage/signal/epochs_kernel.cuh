#pragma once

#include "xstage/signal/device_signals.cuh"

// The kernel that tries signals out: signals_device_test.cu runs it on a GPU, device_signals_test.cpp on threads.

namespace xs::cases {

constexpr int kThreads = 128;

__device__ inline std::uint64_t nanos() { return cuda::ptx::get_sreg_globaltimer(); }

__device__ inline void spin(std::uint64_t ns) {
  for (const auto begin = nanos(); nanos() - begin < ns;) {
  }
}

// Other in every epoch and for every pair and place, so that no old word passes for a new one.
__device__ inline std::uint64_t payload_word(std::uint32_t epoch, int source, int peer, int index) {
  return std::uint64_t{epoch} << 32 | static_cast<std::uint64_t>(source) << 24 |
         static_cast<std::uint64_t>(peer) << 16 | static_cast<std::uint64_t>(index);
}

// In every epoch each rank writes a payload to its peers and raises one flag per block at them; each block of a
// receiver checks every word of what it waited for.
struct Epochs {
  const SignalTable* tables;
  int num_parts;
  std::byte* const* parts;  // of every rank, that holds the payload
  std::uint64_t payload;    // where a region begins in it, with `num_words` per source
  int num_words;
  bool all_to_all;  // else to the next rank
  std::int64_t num_epochs;
  const std::uint32_t* delays_ns;  // by rank and step, in turn
  std::uint32_t num_delays;
  unsigned long long* wrong;  // words
  int late_rank = -1;
  std::uint64_t late_ns = 0;    // before its first epoch
  int drop_rank = -1;           // its first block does not raise at the next rank ...
  std::int64_t drop_epoch = 0;  // ... in this epoch of the launch
};

__global__ void __launch_bounds__(kThreads) epochs_kernel(const __grid_constant__ Epochs one) {
  const GridPart part = part_of(static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x), one.num_parts);
  DeviceSignals signals(one.tables[part.part]);
  const int rank = signals.rank(), num_ranks = signals.num_ranks();
  const int num_peers = one.all_to_all ? num_ranks - 1 : 1;
  const auto delay = [&](std::int64_t step) {
    const auto draw = static_cast<std::uint64_t>(step * num_ranks + rank + 7 * part.block);
    spin(one.delays_ns[draw % one.num_delays]);
  };
  const auto payload_of = [&](int of) { return reinterpret_cast<std::uint64_t*>(one.parts[of] + one.payload); };
  if (rank == one.late_rank) spin(one.late_ns);
  for (std::int64_t i = 0; i < one.num_epochs; ++i) {
    for (int hop = 1; hop <= num_peers; ++hop) {
      const int peer = (rank + hop) % num_ranks;
      auto* slot = payload_of(peer) + static_cast<std::int64_t>(rank) * one.num_words;
      for (int word = part.block + part.num_blocks * static_cast<int>(threadIdx.x); word < one.num_words;
           word += part.num_blocks * static_cast<int>(blockDim.x)) {
        slot[word] = payload_word(signals.epoch(), rank, peer, word);
      }
      if (hop == 1) delay(2 * i);
      const bool dropped = rank == one.drop_rank && i == one.drop_epoch && hop == 1 && part.block == 0;
      if (!dropped) signals.raise_together(peer, rank);
    }
    for (int hop = 1; hop <= num_peers; ++hop) {
      const int source = (rank + num_ranks - hop) % num_ranks;
      if (!signals.wait_block(source, static_cast<Word>(part.num_blocks))) return;
      const auto* slot = payload_of(rank) + static_cast<std::int64_t>(source) * one.num_words;
      for (int word = static_cast<int>(threadIdx.x); word < one.num_words; word += static_cast<int>(blockDim.x)) {
        if (slot[word] != payload_word(signals.epoch(), source, rank, word)) atomicAdd(one.wrong, 1ull);
      }
    }
    delay(2 * i + 1);
    if (!signals.close_epoch(part.num_blocks)) return;
  }
}

}  // namespace xs::cases
