#pragma once

#include "xstage/op/moe/moe_kernel.cuh"

namespace xs::moe {

// The operands of tiles, through the ring of stages. One thread.
class OperandLoader {
 public:
  __device__ explicit OperandLoader(const Block& block) : block_(block) {}

  // Linear-1: gate columns stand before the up columns of the same activations.
  __device__ void load(const Queued& queued) {
    const LayerParams& params = block_.params;
    const RankLayer& rank = block_.rank;
    const int row = queued.of.block * 128;
    const bool is_linear1 = is(TaskKind::linear1, queued);
    const int depth = is_linear1 ? params.hidden : params.intermediate;
    const CUtensorMap& rows = is_linear1 ? rank.rows : rank.activations;
    const CUtensorMap& columns = is_linear1 ? rank.gate_up : rank.down;
    const int first = is_linear1 ? queued.group * 2 * params.intermediate + queued.of.tile * 128
                                 : queued.group * params.hidden + queued.of.tile * 256;
    const int second = first + (is_linear1 ? params.intermediate : 128);
    auto& shared = block_.shared;
    for (int column = 0; column < depth; column += kProductDepth) {
      if (use_ > 0) shared.free[stage_].wait(phase_of(use_ - 1));
      auto& full = shared.full[stage_];
      full.arrive_and_expect(kStageBytes);
      load_box(shared.rows[stage_], rows, full, column, row);
      load_box(shared.columns[stage_], columns, full, column, first);
      load_box(shared.columns[stage_] + kRowBoxBytes, columns, full, column, second);
      if (++stage_ == kStages) stage_ = 0, ++use_;
    }
  }

 private:
  const Block& block_;
  int stage_ = 0, use_ = 0;
};

// Tasks on their way to the other roles.
class TaskWriter {
 public:
  __device__ explicit TaskWriter(BlockShared& shared) : shared_(shared) {}
  __device__ void write(const Queued& queued) {
    const int place = count_ % kQueued;
    if (count_ >= kQueued) shared_.taken[place].wait(phase_of(count_ / kQueued - 1));
    shared_.queue[place] = queued;
    shared_.queued[place].arrive();
    ++count_;
  }

 private:
  BlockShared& shared_;
  int count_ = 0;
};

__device__ inline std::int64_t claim(const Block& block, int turn) {
  if (block.params.claim == Claim::fixed) return block.part.block + std::int64_t{turn} * block.part.num_blocks;
  // Orders nothing: what a task needs, its flags say.
  return static_cast<std::int64_t>(device::relaxed_add<cuda::thread_scope_device>(*block.rank.next_claim, 1));
}

// What a Linear-2 tile reads is there. False: give up.
__device__ inline bool wait_for_activations(const Block& block, std::int32_t row_block) {
  if (!block.signals().wait(block.params.activated + row_block, static_cast<Word>(block.counts.linear1_tiles))) {
    return false;
  }
  fence_before_loads();  // they were written by ordinary stores
  return true;
}

// All rows of this rank's tokens are there. False: give up.
__device__ inline bool wait_for_rows(const Block& block) {
  const auto& signals = block.signals();
  for (int peer = 0; peer < signals.num_ranks(); ++peer) {
    const auto rows = std::int64_t{block.rank.rows_by_holder[peer]} * block.counts.linear2_tiles;
    if (!signals.wait(block.params.combined + peer, static_cast<Word>(rows))) return false;
  }
  return true;
}

// Warp 0; one of its threads works.
__device__ inline void load_role(const Block& block) {
  if (threadIdx.x != 0) return;
  OperandLoader loader(block);
  TaskWriter tasks(block.shared);
  bool all_rows = false;
  for (int turn = 0;; ++turn) {
    Queued queued{Queued::task, {}, 0, claim(block, turn)};
    if (queued.claim >= block.counts.num_tasks()) break;
    queued.of = task_at(block.params.order, block.counts, queued.claim);
    if (is_linear(queued)) queued.group = group_of_block(block.counts, queued.of.block);
    if (is(TaskKind::linear2, queued) && !wait_for_activations(block, queued.of.block)) break;
    if (is(TaskKind::reduce, queued) && !all_rows) {
      tasks.write({Queued::rows_end, {}, 0, 0});  // before the wait, which is for this block's rows, too
      if (!wait_for_rows(block)) break;
      all_rows = true;
    }
    tasks.write(queued);
    if (is_linear(queued)) loader.load(queued);
  }
  tasks.write({Queued::end, {}, 0, 0});
}

}  // namespace xs::moe
