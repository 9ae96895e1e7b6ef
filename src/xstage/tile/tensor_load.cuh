#pragma once

#include <cuda.h>

#include <cuda/ptx>

#include <cstddef>
#include <cstdint>

#include "xstage/tile/mbarrier.cuh"

namespace xs {

// A box of a matrix (map_matrix()) into shared memory, aligned to 1024 bytes: rows of 128 bytes in the 128-byte swizzle
// that wgmma.cuh reads. What lies outside of the matrix arrives as zeros.
//
// Called by one thread. Needs: the place is free, for the asynchronous proxy too; if other threads wrote the matrix in
// this kernel, an acquire of that and a proxy fence. Guarantees on return: issued; `full` counts the bytes. Pairs with
// full.is_over().
__device__ inline void load_box(std::byte* target, const CUtensorMap& map, Mbarrier& full, int column, int row) {
  namespace ptx = cuda::ptx;
  const std::int32_t corner[] = {column, row};
  ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, target, &map, corner, full.word());
}

// The same of consecutive bytes: a multiple of 16, both places aligned to 16.
__device__ inline void load_bytes(std::byte* target, const std::byte* source, int bytes, Mbarrier& full) {
  namespace ptx = cuda::ptx;
  ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, target, source, static_cast<std::uint32_t>(bytes),
                     full.word());
}

// Owed between an acquire and loads of what it acquired, if that was written by ordinary stores.
__device__ inline void fence_before_loads() { cuda::ptx::fence_proxy_async(cuda::ptx::space_global); }

}  // namespace xs
