#pragma once

#if defined(__CUDACC__)
#include <cuda/atomic>
#else
#include "xstage/signal/kernel_on_threads.hpp"
#endif

#include "xstage/signal/flag_words.hpp"

// atomic.hpp for kernels, and the only device code that names a memory order. The scope is that of every rank unless a
// caller says why less will do: cuda::thread_scope_device where reader and writer are blocks of one rank, which is one
// GPU; cuda::thread_scope_block where they are threads of one block.

namespace xs::device {

template <cuda::thread_scope scope>
using Ref = cuda::atomic_ref<Word, scope>;

// Pairs with acquire_load: what the caller wrote and acquired, and what other threads of its block wrote before a
// barrier that the caller passed, is visible to who reads the result. Waits until the caller's own earlier writes are
// remote visible: 2,850 to 5,000 cycles behind stores over NVLink.
template <cuda::thread_scope scope = cuda::thread_scope_system>
__device__ inline void release_add(Word& word, Word amount) {
  Ref<scope>(word).fetch_add(amount, cuda::memory_order_release);
}
template <cuda::thread_scope scope = cuda::thread_scope_system>
__device__ inline void release_store(Word& word, Word value) {
  Ref<scope>(word).store(value, cuda::memory_order_release);
}

// Pairs with release_add and release_store. Other threads of the block see it after a barrier.
template <cuda::thread_scope scope = cuda::thread_scope_system>
__device__ inline Word acquire_load(Word& word) {
  return Ref<scope>(word).load(cuda::memory_order_acquire);
}

// Both at once, for who may be the last of a group: acquires what those before it published. Returns the old value.
template <cuda::thread_scope scope>
__device__ inline Word arrive(Word& word) {
  return Ref<scope>(word).fetch_add(1, cuda::memory_order_acq_rel);
}

// Order nothing: for diagnosis, and for words that another pair already orders.
template <cuda::thread_scope scope = cuda::thread_scope_system>
__device__ inline Word relaxed_load(Word& word) {
  return Ref<scope>(word).load(cuda::memory_order_relaxed);
}
template <cuda::thread_scope scope = cuda::thread_scope_system>
__device__ inline void relaxed_store(Word& word, Word value) {
  Ref<scope>(word).store(value, cuda::memory_order_relaxed);
}

// For numbers that only have to differ. Returns the old value.
template <cuda::thread_scope scope>
__device__ inline Word relaxed_add(Word& word, Word amount) {
  return Ref<scope>(word).fetch_add(amount, cuda::memory_order_relaxed);
}

// First writer wins. Release on success pairs with acquire_load of the same word.
__device__ inline bool claim_once(Word& word, Word value) {
  Word empty = 0;
  return Ref<cuda::thread_scope_system>(word).compare_exchange_strong(empty, value, cuda::memory_order_acq_rel,
                                                                      cuda::memory_order_acquire);
}

}  // namespace xs::device
