#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

// Rows of bf16 between sums in registers and stores: a part of shared memory that one warpgroup writes and other warps
// store from, row by row.

namespace xs {

// 64 rows of up to 256 columns. 16 bytes more than a row needs, so that eight rows lie in different banks.
inline constexpr int kStagedRows = 64, kStagedColumns = 256;
inline constexpr int kStagedPitch = kStagedColumns * 2 + 16;
inline constexpr int kStagedBytes = kStagedRows * kStagedPitch;

__device__ inline std::uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

// 16 rows by 16 columns of a warp: `sums` as wgmma.cuh spreads two times eight columns. Called by all threads of warp
// `warp` of the warpgroup.
__device__ inline void stage_16_columns(std::byte* staging, int warp, int column, const float (&sums)[8]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::byte* row = staging + (warp * 16 + lane % 16) * kStagedPitch + column * 2 + lane / 16 * 16;
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   static_cast<std::uint32_t>(__cvta_generic_to_shared(row))),
               "r"(pack_bf16(sums[0], sums[1])), "r"(pack_bf16(sums[2], sums[3])), "r"(pack_bf16(sums[4], sums[5])),
               "r"(pack_bf16(sums[6], sums[7]))
               : "memory");
}

// Stores the first `bytes` of each of 64 staged rows, `bytes` a multiple of 16, at most kStagedColumns * 2. Called by
// all threads of a warp. `target(row)`: where a row goes, aligned to 16 bytes; nullptr: nowhere. `before(row, count)`
// is called by all threads before so many rows are stored. Issued on return, and source free. Orders nothing.
template <class Target, class Before>
__device__ inline void store_staged_rows(const std::byte* staging, int bytes, Target target, Before before) {
  constexpr int kAtOnce = 8;  // loads under way before the first store
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // A narrow row takes half of a warp.
  const int lanes = bytes > 256 ? 32 : 16, rows_at_once = 32 / lanes;
  const int place = lane % lanes * 16, first = lane / lanes;
  const bool stores = place < bytes;
  for (int row = first; row < kStagedRows; row += kAtOnce * rows_at_once) {
    before(row - first, kAtOnce * rows_at_once);
    uint4 words[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      words[i] = *reinterpret_cast<const uint4*>(staging + (row + i * rows_at_once) * kStagedPitch + place);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      std::byte* const to = target(row + i * rows_at_once);
      if (stores && to != nullptr) *reinterpret_cast<uint4*>(to + place) = words[i];
    }
  }
}

// Copies a row of `bytes`, a multiple of 16, between places in memory that are aligned to 16 bytes. Called by all
// threads of a warp. Issued on return, and source free. Orders nothing.
__device__ inline void copy_row(std::byte* target, const std::byte* source, int bytes) {
  constexpr int kAtOnce = 8, kStep = 32 * 16;
#pragma unroll 1
  for (int at = static_cast<int>(threadIdx.x) % 32 * 16; at < bytes; at += kAtOnce * kStep) {
    uint4 words[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (at + i * kStep < bytes) words[i] = *reinterpret_cast<const uint4*>(source + at + i * kStep);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (at + i * kStep < bytes) *reinterpret_cast<uint4*>(target + at + i * kStep) = words[i];
    }
  }
}

}  // namespace xs
