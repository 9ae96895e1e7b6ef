#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "xstage/core/bucket.hpp"
#include "xstage/mem/device_rank.hpp"
#include "xstage/op/moe/gpu_tiling.hpp"
#include "xstage/plan/order.hpp"
#include "xstage/plan/rows_to.hpp"
#include "xstage/signal/signal_table.hpp"

// The layer's kernel for Hopper (sm_90a), and what it needs. For code that calls CUDA.

namespace xs::moe {

// Where a row of a block goes: place `slot` among the combine slots of its owner, counted over the owner's tokens.
struct RowTag {
  std::int32_t owner;  // -1: the row is none
  std::int32_t slot;
};

// A row that this rank dispatches: one of its tokens, to a row of the expert's holder, and the slot that it comes back
// to.
struct RowSend {
  std::int32_t token, row, slot;
};

// What a worker did of the one order, and when: SM cycles since the block began.
struct TaskStamp {
  std::int32_t kind, block, tile, worker;
  std::int64_t begin, end;  // of the products
  std::int64_t waited;      // for operands, of those; products of the step before go on meanwhile
  std::int64_t stalled;     // for rows of the tile before to be stored, of those
};

// One rank, as its part of the grid needs it. Pointers are to memory of its GPU, bf16 row-major where nothing is said.
struct RankLayer {
  CUtensorMap rows, gate_up, activations, down;  // map_matrix() with 128 rows a box
  std::byte* activation_rows;                    // [slots, 128, intermediate], what `activations` shows
  const std::byte* tokens;                       // [tokens, hidden]
  Counts counts;
  const std::int32_t* block_rows;      // [blocks]
  const std::int32_t* arriving;        // [blocks] of those, dispatched in this launch
  const std::int32_t* slots;           // [blocks] where its activations stand; none: block by block
  const std::int32_t* taken_from;      // [blocks] block that its slot held before, -1: none
  const RowSend* sends;                // by expert
  const std::int32_t* send_begin;      // [experts + 1] of the whole layer, shared ones included
  const std::int32_t* holders;         // [experts]
  const std::int32_t* rows_by_holder;  // [ranks] rows of this rank's tokens that each rank sends back
  std::int32_t num_rows;               // dispatched to it in all
  const std::int32_t* slot_experts;    // [tokens, slots]; negative: nothing comes
  const float* slot_weights;           // [tokens, slots]
  std::int32_t num_tokens;
  std::byte* output;          // [tokens, hidden]
  std::uint64_t* next_claim;  // behind the dispatch tasks; 0 before the first launch
  TaskStamp* stamps;          // [tasks], or none
};

inline constexpr int kMostParts = 8;

struct LayerParams {
  RankLayer ranks[kMostParts];  // those that run in this grid
  std::int32_t num_parts;
  const SignalTable* tables;     // theirs
  std::byte* const* row_parts;   // of every rank
  std::uint64_t rows, tags;      // where [blocks, 128, hidden] and its RowTags begin in it
  std::byte* const* slot_parts;  // of every rank
  std::uint64_t slots;           // where [tokens, slots, hidden] begins in it
  std::int32_t hidden, intermediate, num_slots;
  std::int32_t arrived, activated, released, combined;  // first flags: of each block; the last of each rank
  Order order;
  Claim claim;
  RowsTo rows_to;
  float clamp;       // Inputs::clamp
  BucketRates pace;  // of each warp that sends; drain 0: none keeps to one
  GigaHertz clock;   // highest of the SMs
};

struct KernelNeeds {
  const void* kernel;
  int threads;
  std::size_t shared_bytes;
};
// Of a block; `most_groups`: local experts of a rank.
KernelNeeds layer_kernel_needs(int most_groups);

// Before a launch of `rank` alone, whose peers do not run: their arrivals at its end. `tables`: of all ranks. On
// return: queued.
void launch_absent(const SignalTable* tables, int num_ranks, int rank, cudaStream_t stream);

// bf16 numbers in (-1, 1) that a product takes as much power for as for real ones. On return: queued.
void launch_random_fill(std::byte* target, std::size_t bytes, std::uint64_t seed, cudaStream_t stream);

// num_blocks: of all ranks in the grid together, all of them resident. On return: queued.
void launch_layer(const LayerParams& params, int num_blocks, int most_groups, cudaStream_t stream);

}  // namespace xs::moe
