#pragma once

#include "xstage/op/moe/moe_kernel.cuh"

namespace xs::moe {

// The operands of tiles, through the ring of stages. One thread.
class OperandLoader {
 public:
  __device__ explicit OperandLoader(const Block& block) : block_(block) {}

  // Linear-1: gate columns stand before the up columns of the same activations. `near_end` is called once, while the
  // last few loads of the tile are still to come and products have work for longer than it takes.
  template <class NearEnd>
  __device__ void load(const Queued& queued, NearEnd near_end) {
    constexpr int kNearEnd = 5 * kProductDepth;
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
    const int near_end_column = ::max(0, (depth - kNearEnd) / kProductDepth * kProductDepth);
    for (int column = 0; column < depth; column += kProductDepth) {
      if (column == near_end_column) near_end();
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

// The thread that decides what its block does next.
class Claimer {
 public:
  __device__ explicit Claimer(const Block& block) : block_(block) {}

  // What the next claim brings; `end` behind the last task.
  __device__ Queued next() {
    Queued queued{Queued::task, {}, 0, claim()};
    if (queued.claim >= block_.counts.num_tasks()) return {Queued::end, {}, 0, 0};
    queued.of = task_at(block_.params.order, block_.counts, queued.claim);
    if (is_linear(queued)) queued.group = group_of_block(block_.counts, queued.of.block);
    // The one look costs little here, and mostly a tile's activations have been there for long.
    is_ready_ = is(TaskKind::linear2, queued) && block_.signals().is_there(flag(queued), tiles());
    return queued;
  }

  // What the task reads is there. False: give up.
  __device__ bool wait(const Queued& queued) {
    if (is(TaskKind::linear2, queued)) {
      if (!is_ready_ && !block_.signals().wait(flag(queued), tiles())) return false;
      fence_before_loads();  // activations were written by ordinary stores
    }
    if (is(TaskKind::reduce, queued) && !all_rows_) return all_rows_ = wait_for_rows();
    return true;
  }
  __device__ bool waits_for_rows(const Queued& queued) const { return is(TaskKind::reduce, queued) && !all_rows_; }

 private:
  __device__ int flag(const Queued& queued) const { return block_.params.activated + queued.of.block; }
  __device__ Word tiles() const { return static_cast<Word>(block_.counts.linear1_tiles); }
  __device__ std::int64_t claim() {
    if (block_.params.claim == Claim::fixed) {
      return block_.part.block + std::int64_t{num_claims_++} * block_.part.num_blocks;
    }
    // Orders nothing: what a task needs, its flags say.
    return static_cast<std::int64_t>(device::relaxed_add<cuda::thread_scope_device>(*block_.rank.next_claim, 1));
  }
  // Of all tokens of this rank, from every rank.
  __device__ bool wait_for_rows() const {
    const auto& signals = block_.signals();
    for (int peer = 0; peer < signals.num_ranks(); ++peer) {
      const auto rows = std::int64_t{block_.rank.rows_by_holder[peer]} * block_.counts.linear2_tiles;
      if (!signals.wait(block_.params.combined + peer, static_cast<Word>(rows))) return false;
    }
    return true;
  }

  const Block& block_;
  int num_claims_ = 0;
  bool is_ready_ = false, all_rows_ = false;
};

// Warp 0; one of its threads works.
__device__ inline void load_role(const Block& block) {
  if (threadIdx.x != 0) return;
  OperandLoader loader(block);
  TaskWriter tasks(block.shared);
  Claimer claimer(block);
  Queued queued = claimer.next();
  while (queued.what == Queued::task) {
    if (claimer.waits_for_rows(queued)) tasks.write({Queued::rows_end, {}, 0, 0});  // they are this block's rows, too
    if (!claimer.wait(queued)) break;
    tasks.write(queued);
    if (is_linear(queued)) {
      Queued next;
      loader.load(queued, [&] { next = claimer.next(); });
      queued = next;
    } else {
      queued = claimer.next();
    }
  }
  tasks.write({Queued::end, {}, 0, 0});
}

}  // namespace xs::moe
