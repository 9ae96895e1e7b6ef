#pragma once

#include <cuda/atomic>

#include "xstage/signal/flag_word.hpp"

// signal/atomic.hpp for kernels: the only place of the device leg that names a memory order. System scope throughout:
// a peer may be another GPU or the host, and on one GPU the same code must mean the same.

namespace xs::device {

using SystemWord = cuda::atomic_ref<Word, cuda::thread_scope_system>;

// Pairs with acquire_load: what the caller wrote (and acquired, and what a barrier of its block ordered before) is
// visible to who reads the result. Cost: 2,850 to 5,000 cycles behind remote stores (H200, 2026-11-30).
__device__ inline void release_add(Word& word, Word amount) {
  SystemWord(word).fetch_add(amount, cuda::memory_order_release);
}
__device__ inline void release_store(Word& word, Word value) {
  SystemWord(word).store(value, cuda::memory_order_release);
}

// Pairs with release_add and release_store.
__device__ inline Word acquire_load(Word& word) { return SystemWord(word).load(cuda::memory_order_acquire); }

// Orders nothing: for diagnosis, and for words that another pair already orders.
__device__ inline Word relaxed_load(Word& word) { return SystemWord(word).load(cuda::memory_order_relaxed); }
__device__ inline void relaxed_store(Word& word, Word value) {
  SystemWord(word).store(value, cuda::memory_order_relaxed);
}

// First writer wins. Release on success pairs with acquire_load of the same word.
__device__ inline bool claim_once(Word& word, Word value) {
  Word empty = 0;
  return SystemWord(word).compare_exchange_strong(empty, value, cuda::memory_order_acq_rel, cuda::memory_order_acquire);
}

}  // namespace xs::device
