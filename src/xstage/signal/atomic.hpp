#pragma once

#include <atomic>
#include <cstdint>

#include "xstage/signal/flag_word.hpp"

// The only place that names a memory order. Words lie in symmetric memory; scope: every thread of every rank that maps
// it. Orderings stand on the operations, never on fences, because ThreadSanitizer does not see fences.

namespace xs {

// Pairs with acquire_load: what the caller wrote (and acquired) before is visible to who reads the result.
inline void release_add(Word& word, Word amount) { std::atomic_ref(word).fetch_add(amount, std::memory_order_release); }
inline void release_store(Word& word, Word value) { std::atomic_ref(word).store(value, std::memory_order_release); }

// Pairs with release_add and release_store.
inline Word acquire_load(Word& word) { return std::atomic_ref(word).load(std::memory_order_acquire); }

// Orders nothing: for diagnosis, and for words that another pair already orders.
inline Word relaxed_load(Word& word) { return std::atomic_ref(word).load(std::memory_order_relaxed); }

// First writer wins. Release on success pairs with acquire_load of the same word.
inline bool claim_once(Word& word, Word value) {
  Word empty = 0;
  return std::atomic_ref(word).compare_exchange_strong(empty, value, std::memory_order_acq_rel,
                                                       std::memory_order_acquire);
}

// A doorbell's two words are sequentially consistent: the ringer writes `rings` then reads `sleepers`, the sleeper
// writes `sleepers` then reads `rings`; with anything weaker both could read the old value and the ring be missed.
using Bell = std::uint32_t;
inline Bell ordered_add(Bell& word, Bell amount) {
  return std::atomic_ref(word).fetch_add(amount, std::memory_order_seq_cst);
}
inline Bell ordered_load(Bell& word) { return std::atomic_ref(word).load(std::memory_order_seq_cst); }

}  // namespace xs
