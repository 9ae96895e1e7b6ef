#pragma once

#include "xstage/op/moe/moe_kernel.cuh"

namespace xs::moe {

// Bytes of a tile's row that lie inside of the matrix.
__device__ inline int valid_bytes(int width, int first, int tile_columns) {
  return ::min(tile_columns, width - first) * 2;
}

// Warp 1. Activations of a tile are published as soon as their stores are visible on this GPU; nobody here waits for
// that but this warp.
__device__ inline void activation_role(const Block& block) {
  const auto& params = block.params;
  auto& shared = block.shared;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  TaskReader tasks(block);
  Queued queued;
  for (int outputs = 0; tasks.next(queued);) {
    if (!is_linear(queued)) continue;
    const int output = outputs++, first = queued.of.tile * 128, bytes = valid_bytes(params.intermediate, first, 128);
    const bool stores = is(TaskKind::linear1, queued);
    const std::int64_t pitch = std::int64_t{params.intermediate} * 2;
    std::byte* tile = block.rank.activation_rows + std::int64_t{queued.of.block} * 128 * pitch + first * 2;
    for (int half = 0; half < 2; ++half, tile += kStagedRows * pitch) {
      shared.staged[half].wait(phase_of(output));
      if (stores) store_staged_rows(shared.staging[half], bytes, [&](int row) { return tile + row * pitch; });
      __syncwarp();
      if (lane == 0) shared.drained[half].arrive();
    }
    // publishes: the tile, which the lanes stored before the barriers above; to: wait_for_need() of any worker
    // of the rank; release, system scope. Pairs with that acquire and the fence of the asynchronous proxy behind it.
    if (stores && lane == 0) block.signals().raise(block.signals().rank(), params.activated + queued.of.block);
  }
}

// Half of a part of an expert's rows of this rank's tokens, to its holder, with where each comes back to.
__device__ inline void dispatch_rows(const Block& block, const Task& task, int half) {
  const auto& params = block.params;
  const auto& rank = block.rank;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int expert = task.block;
  const std::int32_t begin = rank.send_begin[expert], all = rank.send_begin[expert + 1] - begin;
  const auto of_part = [&](int part) { return split_begin(all, block.counts.dispatch_parts, part); };
  const std::int64_t part = of_part(task.tile), count = of_part(task.tile + 1) - part;
  const auto first = static_cast<std::int32_t>(begin + part + split_begin(count, 2, half));
  const auto end = static_cast<std::int32_t>(begin + part + split_begin(count, 2, half + 1));
  if (first == end) return;
  const int holder = rank.holders[expert];
  const std::int64_t pitch = std::int64_t{params.hidden} * 2;
  std::byte* const rows = params.row_parts[holder] + params.rows;
  auto* const tags = reinterpret_cast<RowTag*>(params.row_parts[holder] + params.tags);
  for (std::int32_t some = first; some < end; some += 32) {
    const RowSend send = rank.sends[::min(some + lane, end - 1)];
    if (some + lane < end) tags[send.row] = {block.signals().rank(), send.slot};
    for (int i = 0; i < ::min(32, end - some); ++i) {
      copy_row(rows + __shfl_sync(0xffffffffu, send.row, i) * pitch,
               rank.tokens + __shfl_sync(0xffffffffu, send.token, i) * pitch, static_cast<int>(pitch));
    }
  }
  __syncwarp();
  // An expert's rows of one source stand in a row.
  const std::int32_t row = rank.sends[first].row, end_row = row + end - first;
  for (std::int32_t to = row / 128 + lane; to * 128 < end_row; to += 32) {
    const std::int32_t here = ::min(end_row, (to + 1) * 128) - ::max(row, to * 128);
    // publishes: rows and tags, which the lanes stored before the barrier above; to: wait_for_need() of a Linear-1 tile
    // there; release, system scope. Pairs with that acquire and the fence of the asynchronous proxy behind it.
    block.signals().raise(holder, params.arrived + to, static_cast<Word>(here));
  }
}

// Where row `row` of a block goes.
__device__ inline RowTag tag_of(const Block& block, std::int32_t row_block, int row) {
  const auto& params = block.params;
  const auto& rank = block.rank;
  const int self = block.signals().rank();
  if (params.rows_to == RowsTo::nowhere || row >= rank.block_rows[row_block]) return {-1, 0};
  if (params.rows_to == RowsTo::own) {
    const int own_slots = ::max(rank.num_tokens * params.num_slots, 1);
    return {self, (row_block * 128 + row) % own_slots};
  }
  return reinterpret_cast<const RowTag*>(params.row_parts[self] + params.tags)[row_block * 128 + row];
}

// Warps 2 and 3, one for each half of a task's rows.
__device__ inline void row_role(const Block& block, int half) {
  const auto& params = block.params;
  auto& shared = block.shared;
  const auto& signals = block.signals();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t pitch = std::int64_t{params.hidden} * 2;
  std::int32_t stored = 0;  // rows at the owner `lane`; at further owners they are published at once
  const auto publish = [&](int owner, std::int32_t rows) {
    // publishes: rows at their owner; to: wait_for_rows() there; release, system scope.
    if (rows > 0) signals.raise(owner, params.combined + signals.rank(), static_cast<Word>(rows));
  };
  TaskReader tasks(block);
  Queued queued;
  for (int outputs = 0; tasks.next(queued);) {
    if (queued.what == Queued::rows_end) {
      // Now, not with every tile: a release waits until all stores of its thread have left, which takes as long as the
      // link is behind. Nobody needs them earlier, for every sum waits for all rows.
      __syncwarp();
      publish(lane, stored);
      stored = 0;
      continue;
    }
    if (is(TaskKind::dispatch, queued)) dispatch_rows(block, queued.of, half);
    if (!is_linear(queued)) continue;
    shared.staged[half].wait(phase_of(outputs++));
    RowTag low{-1, 0}, high{-1, 0};
    if (is(TaskKind::linear2, queued)) {
      low = tag_of(block, queued.of.block, half * kStagedRows + lane);
      high = tag_of(block, queued.of.block, half * kStagedRows + lane + 32);
      const int first = queued.of.tile * 256;
      store_staged_rows(shared.staging[half], valid_bytes(params.hidden, first, 256), [&](int row) -> std::byte* {
        const int owner = __shfl_sync(0xffffffffu, row < 32 ? low.owner : high.owner, row % 32);
        const int slot = __shfl_sync(0xffffffffu, row < 32 ? low.slot : high.slot, row % 32);
        return owner < 0 ? nullptr : params.slot_parts[owner] + params.slots + slot * pitch + first * 2;
      });
    }
    __syncwarp();
    if (lane == 0) shared.drained[half].arrive();
    for (int owner = 0; owner < signals.num_ranks(); ++owner) {
      const int rows = __popc(__ballot_sync(0xffffffffu, low.owner == owner)) +
                       __popc(__ballot_sync(0xffffffffu, high.owner == owner));
      if (owner >= 32) {
        if (lane == 0) publish(owner, rows);
      } else if (lane == owner) {
        stored += rows;
      }
    }
  }
  __syncwarp();
  publish(lane, stored);
}

}  // namespace xs::moe
