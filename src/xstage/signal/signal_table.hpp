#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "xstage/mem/device_rank.hpp"
#include "xstage/signal/flag_words.hpp"

// What kernels and the host share about the signals of ranks on a GPU. Plain data.

namespace xs {

// What a waiter on the device leaves behind when it gives up.
struct WaitRecord {
  enum class What : std::int32_t {
    flag,      // index: the flag
    arrival,   // at the closing barrier; index: the rank that did not come
    blocks,    // of the own rank, done with the epoch
    handover,  // between roles of a block; index: the caller's
    reset,     // index: the rank that did not come
  };
  What what;
  std::int32_t index;
  std::int32_t rank;
  std::int64_t expected;
  std::int64_t seen;
  std::uint64_t waited_ns;
};

// At the head of every rank's signals region. FlagWords follow.
struct DeviceControl {
  alignas(128) Word aborted;  // 0 · kWriting · 1 + the rank that gave up
  WaitRecord record;          // of that rank, written before
  alignas(128) Word epoch;    // armed(epoch) of this rank when it began a reset
  static constexpr Word kWriting = Word{1} << 63;
};

// What only one rank uses. In the memory of its GPU, wherever its symmetric part lies.
struct LocalWords {
  alignas(128) Word epoch;    // armed(epoch): what this rank's counters start from; advanced by kernels
  alignas(128) Word done;     // blocks that are done with the epoch
  alignas(128) Word arrival;  // what the arrival words held when the last closing barrier was passed
  Word num_resets;
  Word missed_reset;  // 1: the last reset gave up, and `missed` says on whom
  WaitRecord missed;
};

struct SignalTable {
  DeviceRank rank;
  std::uint64_t region;  // where the signals region begins in every part
  int num_flags;
  std::uint64_t timeout_ns;          // of one wait
  std::uint64_t barrier_timeout_ns;  // longer: who misses a raise speaks before those who wait for him
  LocalWords* local;
};

static_assert(std::is_trivially_copyable_v<DeviceControl> && std::is_trivially_copyable_v<SignalTable>);

}  // namespace xs
