#pragma once

#include <cuda/ptx>

#include <cstddef>
#include <cstdint>

#include "xstage/signal/device_fence.cuh"
#include "xstage/tile/store_path.hpp"
#include "xstage/tile/tensor_map.hpp"

// Stores from shared memory into any memory that this GPU reaches, on every store path, and their completion levels:
//
//   source_ready<path>(group)          the bytes in shared memory may be stored
//   store<path>(group, ...)            issued: the stores are on their way
//   wait_source_free<path>(group)      source free: the bytes in shared memory may be written again
//   wait_remote_visible<path>(group)   remote visible: who sees a later flag sees the bytes
//
// All threads of the group call each of them, in this order; levels may be left out, but a block must not end before
// source free. Any number of store() may stand before a wait, which then is for all of them.

namespace xs {

// The threads of a block that store together, in whole warps; their named barrier is used by nobody else meanwhile.
struct StoreGroup {
  int rank, size, barrier;

  // All threads, on the barrier of __syncthreads().
  static __device__ StoreGroup block() { return {static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x), 0}; }
  __device__ bool leads() const { return rank == 0; }
  __device__ void sync() const { asm volatile("barrier.sync %0, %1;" ::"r"(barrier), "r"(size) : "memory"); }
};

// Where the bytes go: a place in memory and, for StorePath::tensor, how its surroundings look as rows.
struct StoreTarget {
  std::byte* base;
  const CUtensorMap* rows;  // map_rows(base, ...) for copies of `copy_bytes`; in parameter or constant memory
};

namespace detail {

__device__ inline void store_word(std::byte* target, uint4 word) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(target)), "r"(word.x),
               "r"(word.y), "r"(word.z), "r"(word.w)
               : "memory");
}

__device__ inline void store_word(std::byte* target, std::uint32_t word) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(target)), "r"(word) : "memory");
}

template <class Word>
__device__ inline void store_words(const StoreGroup& group, std::byte* target, const std::byte* source, int bytes) {
  constexpr int kWord = sizeof(Word);
#pragma unroll 4
  for (int at = group.rank * kWord; at < bytes; at += group.size * kWord) {
    store_word(target + at, *reinterpret_cast<const Word*>(source + at));
  }
}

}  // namespace detail

// Needs: each thread of the group has written its part of the source. Orders these writes before the reads of store()
// (the asynchronous proxy's too, whose fence the writers owe) and, as a barrier, among the group.
template <StorePath path>
__device__ inline void source_ready(const StoreGroup& group) {
  if constexpr (is_asynchronous(path)) cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
  group.sync();
}

// Needs: source_ready(); `offset` into the target and `bytes` multiples of store_unit(path), `source` in shared memory
// and aligned to 16 bytes (tensor: 128), `copy_bytes` a multiple of 16 and used by the asynchronous paths only.
// Guarantees on return: issued, for what the calling thread stores itself. Orders nothing. A tensor store's last rows,
// where they are no whole copy, go as a bulk copy: a map clips at its own end only.
// Cost of st16, bulk with 8 KiB copies: 200 and 140 cycles, then 21 and 43 bytes a cycle while nothing is full.
template <StorePath path>
__device__ inline void store(const StoreGroup& group, const StoreTarget& target, std::int64_t offset,
                             const std::byte* source, int bytes, int copy_bytes) {
  if constexpr (path == StorePath::st16) {
    detail::store_words<uint4>(group, target.base + offset, source, bytes);
  } else if constexpr (path == StorePath::st4) {
    detail::store_words<std::uint32_t>(group, target.base + offset, source, bytes);
  } else if (group.leads()) {
    namespace ptx = cuda::ptx;
    for (int at = 0; at < bytes; at += copy_bytes) {
      const int left = bytes - at;
      if (path == StorePath::tensor && left >= copy_bytes) {
        const std::int32_t corner[] = {0, static_cast<std::int32_t>((offset + at) / kMapRowBytes)};
        ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, target.rows, corner, source + at);
      } else {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, target.base + offset + at, source + at,
                           static_cast<std::uint32_t>(left < copy_bytes ? left : copy_bytes));
      }
    }
    ptx::cp_async_bulk_commit_group();
  }
}

// Guarantees on return: source free, for everything that the group has stored. Says nothing about the target.
template <StorePath path>
__device__ inline void wait_source_free(const StoreGroup& group) {
  if constexpr (is_asynchronous(path)) {
    if (group.leads()) cuda::ptx::cp_async_bulk_wait_group_read(cuda::ptx::n32_t<0>());
  }
  group.sync();  // an ordinary store has read its source when it is issued
}

// Guarantees on return: remote visible, for everything that the group has stored; source free is implied. Each thread
// fences its own stores. wait_group without .read returns as early as with it, and bulk copies are another proxy's
// writes: only the fences behind it make them remote visible. Pairs with an acquire at system scope by the reader of a
// flag that any thread of the group raises afterwards. Cost: fence_system().
template <StorePath path>
__device__ inline void wait_remote_visible(const StoreGroup& group) {
  if constexpr (is_asynchronous(path)) {
    if (group.leads()) {
      cuda::ptx::cp_async_bulk_wait_group(cuda::ptx::n32_t<0>());
      cuda::ptx::fence_proxy_async();
      fence_system();
    }
  } else {
    fence_system();
  }
  group.sync();
}

}  // namespace xs
