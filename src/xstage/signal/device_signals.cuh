#pragma once

#include <cuda/ptx>

#include "xstage/signal/device_atomic.cuh"
#include "xstage/signal/device_signals.hpp"

// Flags inside kernels: the protocol of signal/signals.hpp, with the same words, banks and bounds.
//
// Every function is called by one thread. What a whole block wrote is published like this: every thread writes,
// __syncthreads(), one thread raises. What a flag published is read like this: one thread waits, __syncthreads(), every
// thread reads; before a bulk or tensor load of it the waiting thread also owes a proxy fence.
//
// A wait that returns false has given up, or somebody else has: the results of this launch are void. There is no trap,
// which would kill every process that shares the GPU. The caller hands "false" to all of its block
// (__syncthreads_and), waits for its own outstanding bulk groups, arrives at every barrier that other warps of the
// block wait at, and returns; in a warp-specialised kernel each role does so at its next wait, since all of them fail.
// The host's GpuSignals::check() then says what happened.

namespace xs::device {

inline __device__ std::int64_t now_ns() { return static_cast<std::int64_t>(cuda::ptx::get_sreg_globaltimer()); }

// The epoch that flags count in now. Needs: nobody closes it at the same time.
inline __device__ std::uint32_t epoch(const DeviceSignals& signals) {
  return static_cast<std::uint32_t>(relaxed_load(signals.control(signals.rank).epoch));
}

// publishes: what this thread wrote and acquired, and what a barrier ordered before; to: wait() of `peer` that reaches
// the count; release, system scope. On return: issued.
inline __device__ void raise(const DeviceSignals& signals, std::uint32_t epoch, int peer, int flag,
                             std::int64_t amount) {
  release_add(signals.counter(peer, flag, epoch), static_cast<Word>(amount));
}

// Stops every rank; this rank's first report counts.
inline __device__ void give_up(const DeviceSignals& signals, std::int64_t flag, std::int64_t expected,
                               std::int64_t seen, std::int64_t waited_ns) {
  DeviceControl& own = signals.control(signals.rank);
  if (!claim_once(own.reporting, 1)) return;
  own.flag = flag;
  own.expected = expected;
  own.seen = seen;
  own.waited_ns = waited_ns;
  // publishes: the report; to: the host, which reads it when the launch has ended; release, system scope.
  for (int peer = 0; peer < signals.num_ranks; ++peer) {
    claim_once(signals.control(peer).aborted, static_cast<Word>(signals.rank) + 1);
  }
}

// Until `word` reaches `target`. `base`: what the report counts from. False: gave up.
inline __device__ bool wait_for(const DeviceSignals& signals, Word& word, Word target, Word base, std::int64_t flag,
                                std::int64_t timeout_ns) {
  DeviceControl& own = signals.control(signals.rank);
  constexpr unsigned kLooks = 8;  // at the flag between two at the rest: each costs a trip to the L2 cache
  const std::int64_t begin = now_ns();
  for (unsigned look = 0;; ++look) {
    // acquires: what release_add() and release_store() of the raises published; acquire, system scope.
    const Word seen = acquire_load(word);
    if (ahead(seen, target) >= 0) return true;
    if (look % kLooks != 0) continue;
    if (relaxed_load(own.aborted) != 0) return false;
    const std::int64_t waited = now_ns() - begin;
    if (waited > timeout_ns) {
      give_up(signals, flag, ahead(target, base), ahead(seen, base), waited);
      return false;
    }
  }
}

// acquires: what the raises that make up `count` published; acquire, system scope. False: it expired or somebody gave
// up.
inline __device__ bool wait(const DeviceSignals& signals, std::uint32_t epoch, int flag, std::int64_t count) {
  return wait_for(signals, signals.counter(signals.rank, flag, epoch), armed(epoch) + static_cast<Word>(count),
                  armed(epoch), flag, signals.timeout_ns);
}

// Ends the epoch on all ranks: returns true when every block of every rank has called it; acquires what all of them
// published. Called by one thread of each block (`block`: its number in the rank) after a barrier of the block.
// Needs: the rank's blocks are all resident.
inline __device__ bool close_epoch(const DeviceSignals& signals, std::uint32_t epoch, int block) {
  DeviceControl& own = signals.control(signals.rank);
  const std::int64_t timeout = signals.timeout_ns + signals.timeout_ns / 4;  // so that who misses a raise speaks first
  const Word meeting = relaxed_load(own.meetings) + 1;
  const Word open = relaxed_load(own.epoch);  // block 0 advances it only when this block has joined
  // publishes: that this block is done with the epoch; to: the wait of block 0 below; release.
  release_add(own.joined, 1);
  if (block != 0) {
    // acquires: the closed epoch, and through block 0 what all ranks published.
    return wait_for(signals, own.epoch, open + 1, open, signals.num_flags + signals.num_ranks, timeout);
  }
  const Word before = (meeting - 1) * static_cast<Word>(signals.num_blocks);
  bool reached = wait_for(signals, own.joined, before + static_cast<Word>(signals.num_blocks), before,
                          signals.num_flags + signals.num_ranks, timeout);
  for (int peer = 0; reached && peer < signals.num_ranks; ++peer) {
    // publishes: all that this rank's blocks read and wrote before; to: the wait below on `peer`; release, system.
    release_add(signals.arrival(peer, signals.rank), 1);
  }
  for (int source = 0; reached && source < signals.num_ranks; ++source) {
    const Word base = signals.first_arrival + meeting - 1;
    reached =
        wait_for(signals, signals.arrival(signals.rank, source), base + 1, base, signals.num_flags + source, timeout);
  }
  if (!reached) return false;
  // The closed epoch's bank is idle on all ranks until the epoch after next, which cannot begin before this rank has
  // come to the next closing barrier: that arrival's release orders these stores before any raise.
  for (int flag = 0; flag < signals.num_flags; ++flag) {
    relaxed_store(signals.counter(signals.rank, flag, epoch), armed(epoch + 2));
  }
  relaxed_store(own.meetings, meeting);
  // publishes: all of the above; to: the other blocks' wait; release.
  release_add(own.epoch, 1);
  return true;
}

}  // namespace xs::device
