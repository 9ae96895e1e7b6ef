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
  for (int tiles = 0; tasks.next(queued);) {
    if (!is(TaskKind::linear1, queued)) continue;
    const int count = tiles++, first = queued.of.tile * 128, bytes = valid_bytes(params.intermediate, first, 128);
    const std::int64_t pitch = std::int64_t{params.intermediate} * 2;
    std::byte* tile = block.rank.activation_rows + std::int64_t{block.slot(queued)} * 128 * pitch + first * 2;
    for (int half = 0; half < 2; ++half, tile += kStagedRows * pitch) {
      shared.staged_activations[half].wait(phase_of(count));
      store_staged_rows(
          shared.staging[half], bytes, [&](int row) { return tile + row * pitch; }, [](int, int) {});
      __syncwarp();
      if (lane == 0) shared.drained_activations[half].arrive();
    }
    // publishes: the tile, which the lanes stored before the barriers above; to: wait_for_need() of any worker
    // of the rank; release, system scope. Pairs with that acquire and the fence of the asynchronous proxy behind it.
    if (lane == 0) block.signals().raise(block.signals().rank(), params.activated + queued.of.block);
  }
}

// Whether what goes to the rank passes the port.
__device__ inline bool is_peer(const Block& block, int rank) {
  return block.params.rows_to == RowsTo::owners && rank != block.signals().rank();
}

// What one warp dispatches: half of the rows of each of the block's dispatch tasks, to the holders of their experts,
// with where each comes back to. Row by row, so that a tile's rows need not wait for long.
class Dispatcher {
 public:
  __device__ Dispatcher(const Block& block, int half)
      : block_(block), half_(half), began_(sm_cycles()), claim_(block.part.block) {
    open();
  }

  // Sends one row. False: all have been sent.
  __device__ bool send() {
    if (is_done()) return false;
    const auto& params = block_.params;
    const std::int64_t pitch = std::int64_t{params.hidden} * 2;
    const RowSend send = block_.rank.sends[next_];
    std::byte* const part = params.row_parts[holder_];
    if (is_peer(block_, holder_)) block_.pace(half_, static_cast<int>(pitch));
    copy_row(part + params.rows + send.row * pitch, block_.rank.tokens + send.token * pitch, static_cast<int>(pitch));
    if (lane() == 0) reinterpret_cast<RowTag*>(part + params.tags)[send.row] = {block_.signals().rank(), send.slot};
    if (++next_ == end_) {
      publish();
      close();
      open();
    }
    return true;
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ bool is_done() const { return claim_ >= block_.counts.num_dispatch(); }

  // The next task that has rows for this warp.
  __device__ void open() {
    for (; !is_done(); close()) {
      const Task task = task_at(block_.params.order, block_.counts, claim_);
      const int expert = task.block;
      const std::int32_t begin = block_.rank.send_begin[expert], all = block_.rank.send_begin[expert + 1] - begin;
      const auto of_part = [&](int part) { return split_begin(all, block_.counts.dispatch_parts, part); };
      const std::int64_t part = of_part(task.tile), count = of_part(task.tile + 1) - part;
      first_ = next_ = static_cast<std::int32_t>(begin + part + split_begin(count, 2, half_));
      end_ = static_cast<std::int32_t>(begin + part + split_begin(count, 2, half_ + 1));
      holder_ = block_.rank.holders[expert];
      if (stamps()) {
        block_.rank.stamps[claim_] = {static_cast<std::int32_t>(task.kind),
                                      task.block,
                                      task.tile,
                                      block_.part.block,
                                      sm_cycles() - began_,
                                      0,
                                      0,
                                      0};
      }
      if (first_ < end_) return;
    }
  }

  __device__ void publish() const {
    __syncwarp();
    // An expert's rows of one source stand in a row.
    const std::int32_t row = block_.rank.sends[first_].row, end_row = row + end_ - first_;
    for (std::int32_t to = row / 128 + lane(); to * 128 < end_row; to += 32) {
      const std::int32_t here = ::min(end_row, (to + 1) * 128) - ::max(row, to * 128);
      // publishes: rows and tags, which the lanes stored before the barrier above; to: wait_for_need() of a Linear-1
      // tile there; release, system scope. Pairs with that acquire and the fence of the asynchronous proxy behind it.
      block_.signals().raise(holder_, block_.params.arrived + to, static_cast<Word>(here));
    }
  }

  __device__ void close() {
    if (stamps()) block_.rank.stamps[claim_].end = sm_cycles() - began_;
    claim_ += block_.part.num_blocks;
  }

  // Of the first warp's half.
  __device__ bool stamps() const { return block_.rank.stamps != nullptr && half_ == 0 && lane() == 0; }

  const Block& block_;
  int half_;
  std::int64_t began_;
  std::int32_t claim_, first_ = 0, next_ = 0, end_ = 0;
  int holder_ = 0;
};

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
  Dispatcher dispatcher(block, half);
  TaskReader tasks(block);
  Queued queued;
  enum { kTask, kTile, kNothing } awaited = kTask;
  bool owes = false;  // a row to peers that wait for it, however fast tiles come
  for (int tiles = 0;;) {
    const bool is_there = awaited == kTask ? tasks.is_there()
                          : awaited == kTile
                              ? __all_sync(0xffffffffu, shared.staged_rows[half].is_over(phase_of(tiles)))
                              : false;
    if ((owes || !is_there) && dispatcher.send()) {
      owes = false;
      continue;
    }
    if (awaited == kNothing) break;
    if (awaited == kTask) {
      if (!tasks.next(queued)) {
        awaited = kNothing;
      } else if (is(TaskKind::linear2, queued)) {
        awaited = kTile;
      } else if (queued.what == Queued::rows_end) {
        // Now, not with every tile: a release waits until all stores of its thread have left, which takes as long as
        // the link is behind. Nobody needs them earlier, for every sum waits for all rows.
        __syncwarp();
        publish(lane, stored);
        stored = 0;
      }
      continue;
    }
    shared.staged_rows[half].wait(phase_of(tiles++));
    const RowTag low = tag_of(block, queued.of.block, half * kStagedRows + lane);
    const RowTag high = tag_of(block, queued.of.block, half * kStagedRows + lane + 32);
    const unsigned low_to_peers = __ballot_sync(0xffffffffu, low.owner >= 0 && is_peer(block, low.owner));
    const unsigned high_to_peers = __ballot_sync(0xffffffffu, high.owner >= 0 && is_peer(block, high.owner));
    const int first = queued.of.tile * 256, bytes = valid_bytes(params.hidden, first, 256);
    const auto target = [&](int row) -> std::byte* {
      const int owner = __shfl_sync(0xffffffffu, row < 32 ? low.owner : high.owner, row % 32);
      const int slot = __shfl_sync(0xffffffffu, row < 32 ? low.slot : high.slot, row % 32);
      return owner < 0 ? nullptr : params.slot_parts[owner] + params.slots + slot * pitch + first * 2;
    };
    store_staged_rows(shared.staging[half], bytes, target, [&](int row, int count) {
      const unsigned to_peers = (row < 32 ? low_to_peers : high_to_peers) >> row % 32;
      block.pace(half, __popc(to_peers & ((1u << count) - 1)) * bytes);
    });
    __syncwarp();
    if (lane == 0) shared.drained_rows[half].arrive();
    for (int owner = 0; owner < signals.num_ranks(); ++owner) {
      const int rows = __popc(__ballot_sync(0xffffffffu, low.owner == owner)) +
                       __popc(__ballot_sync(0xffffffffu, high.owner == owner));
      if (owner >= 32) {
        if (lane == 0) publish(owner, rows);
      } else if (lane == owner) {
        stored += rows;
      }
    }
    awaited = kTask;
    owes = true;
  }
  __syncwarp();
  publish(lane, stored);
}

}  // namespace xs::moe
