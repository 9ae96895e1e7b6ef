#pragma once

#include <cstddef>
#include <cstdint>

#include "xstage/signal/flag_word.hpp"

// What kernels and host know alike of a rank's flags on a GPU. Plain data: it crosses into kernels by value.
//
// A rank's flags lie in its own GPU memory, never in far memory: there an addition by one GPU is not atomic to others.

namespace xs {

// At the head of every rank's flags. All words only grow, but for `aborted`, and are zeroed by the host's reset.
struct DeviceControl {
  alignas(128) Word epoch;      // the current one, in the lower 32 bits; advanced by close_epoch() alone, so that a
                                // captured launch goes on where the last one stopped
  Word meetings;                // closing barriers so far
  alignas(128) Word joined;     // blocks of this rank that came to a closing barrier
  alignas(128) Word aborted;    // 0, or 1 + the rank that gave up
  alignas(128) Word reporting;  // the first thread of this rank to give up takes it, and writes:
  std::int64_t flag;            // or num_flags + source: the arrival of that rank at the closing barrier; or
                                // num_flags + num_ranks: blocks of the own rank
  std::int64_t expected, seen;  // counts
  std::int64_t waited_ns;
};

// Flags of one rank as a kernel sees them. regions[r]: rank r's flags as this rank reaches them:
// DeviceControl | two banks of counters | a word per source rank for its arrivals.
struct DeviceSignals {
  std::byte* const* regions;
  std::int32_t rank, num_ranks, num_flags;
  std::int32_t num_blocks;  // of this rank's share of the grid
  std::int64_t timeout_ns;  // of one wait; of a closing barrier a quarter more
  Word first_arrival;       // where arrivals start to count: tests choose values that soon wrap

  static constexpr std::size_t bytes(int num_flags, int num_ranks) {
    return sizeof(DeviceControl) +
           (2 * static_cast<std::size_t>(num_flags) + static_cast<std::size_t>(num_ranks)) * sizeof(Word);
  }
  XS_HD DeviceControl& control(int peer) const { return *reinterpret_cast<DeviceControl*>(regions[peer]); }
  XS_HD Word* words(int peer) const { return reinterpret_cast<Word*>(regions[peer] + sizeof(DeviceControl)); }
  XS_HD Word& counter(int peer, int flag, std::uint32_t epoch) const {
    return words(peer)[counter_index(num_flags, flag, epoch)];
  }
  XS_HD Word& arrival(int peer, int source) const { return words(peer)[2 * num_flags + source]; }
};

}  // namespace xs
