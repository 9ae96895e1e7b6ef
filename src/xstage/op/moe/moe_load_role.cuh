#pragma once

#include "xstage/op/moe/moe_kernel.cuh"

namespace xs::moe {

// What tasks read, through the ring of stages. One thread.
class OperandLoader {
 public:
  __device__ explicit OperandLoader(const Block& block) : block_(block) {}

  // The operands of a tile; Linear-1: gate columns stand before the up columns of the same activations. Calls `early()`
  // when a ring of loads is left, and `late()` one load later.
  template <class Early, class Late>
  __device__ void load_tile(const Queued& queued, Early early, Late late) {
    const LayerParams& params = block_.params;
    const RankLayer& rank = block_.rank;
    const bool is_linear1 = is(TaskKind::linear1, queued);
    const int row = (is_linear1 ? queued.of.block : block_.slot(queued)) * 128;
    const int steps = ceil_div(is_linear1 ? params.hidden : params.intermediate, kProductDepth);
    const CUtensorMap& rows = is_linear1 ? rank.rows : rank.activations;
    const CUtensorMap& columns = is_linear1 ? rank.gate_up : rank.down;
    const int first = is_linear1 ? queued.group * 2 * params.intermediate + queued.of.tile * 128
                                 : queued.group * params.hidden + queued.of.tile * 256;
    const int second = first + (is_linear1 ? params.intermediate : 128);
    for (int step = 0; step < steps; ++step) {
      if (step == ::max(0, steps - kStages)) early();
      if (step == ::max(0, steps - kStages + 1)) late();
      const int column = step * kProductDepth;
      std::byte* const stage = free_stage();
      auto& full = block_.shared.full[stage_];
      full.arrive_and_expect(kStageBytes);
      load_box(stage, rows, full, column, row);
      load_box(stage + kRowBoxBytes, columns, full, column, first);
      load_box(stage + 2 * kRowBoxBytes, columns, full, column, second);
      next_stage();
    }
    if (!is_linear1 && rank.slots != nullptr) unread_ = queued.of.block, loads_until_read_ = kStages;
  }

  // Before the loader waits for others: what it has loaded for the last tile is read, and they know.
  __device__ void finish() {
    if (unread_ < 0) return;
    for (int stage = 0; stage < kStages; ++stage) {
      const int uses = use_ + (stage < stage_ ? 1 : 0);
      if (uses > 0) block_.shared.free[stage].wait(phase_of(uses - 1));
    }
    release();
  }

  // The slots of a chunk's tokens, those that something came for, in their order: for each token and each part of its
  // columns as many stages as its slots take.
  __device__ void load_slots(int chunk) {
    const LayerParams& params = block_.params;
    const RankLayer& rank = block_.rank;
    const std::byte* slots = params.slot_parts[block_.signals().rank()] + params.slots;
    const std::int64_t pitch = std::int64_t{params.hidden} * 2;
    const auto [first, end] = tokens_of_chunk(rank, chunk);
    for (int token = first; token < end; ++token) {
      for (int column = 0; column < params.hidden; column += kSumColumns) {
        const int bytes = ::min(kSumColumns, params.hidden - column) * 2;
        for (int slot = 0; slot < params.num_slots; slot += kSumSlots) {
          load_stage(std::int64_t{token} * params.num_slots + slot, ::min(kSumSlots, params.num_slots - slot),
                     slots + column * 2, pitch, bytes);
        }
      }
    }
  }

 private:
  __device__ void load_stage(std::int64_t first, int num_slots, const std::byte* slots, std::int64_t pitch, int bytes) {
    const RankLayer& rank = block_.rank;
    std::int32_t experts[kSumSlots];
    float weights[kSumSlots];
#pragma unroll
    for (int i = 0; i < kSumSlots; ++i) {  // all on their way together
      experts[i] = i < num_slots ? rank.slot_experts[first + i] : -1;
      weights[i] = i < num_slots ? rank.slot_weights[first + i] : 0;
    }
    std::byte* const stage = free_stage();
    auto& sums = block_.shared.sums[stage_];
    int count = 0;
#pragma unroll
    for (int i = 0; i < kSumSlots; ++i) {
      if (experts[i] >= 0) sums.weights[count++] = weights[i];
    }
    sums.count = count;
    auto& full = block_.shared.full[stage_];
    full.arrive_and_expect(count * bytes);
    std::byte* target = stage;
#pragma unroll
    for (int i = 0; i < kSumSlots; ++i) {
      if (experts[i] < 0) continue;
      load_bytes(target, slots + (first + i) * pitch, bytes, full);
      target += bytes;
    }
    next_stage();
  }

  // All roles that read what stood in it are done with it.
  __device__ std::byte* free_stage() {
    if (use_ > 0) block_.shared.free[stage_].wait(phase_of(use_ - 1));
    if (unread_ >= 0 && --loads_until_read_ == 0) release();
    return block_.shared.operands[stage_];
  }
  __device__ void release() {
    // publishes: that this tile's activations have been read, which stages that are free again tell; to: the wait for
    // `released` of a Linear-1 tile that takes their slot; release, system scope.
    block_.signals().raise(block_.signals().rank(), block_.params.released + unread_);
    unread_ = -1;
  }
  __device__ void next_stage() {
    if (++stage_ == kStages) stage_ = 0, ++use_;
  }

  const Block& block_;
  int stage_ = 0, use_ = 0;
  std::int32_t unread_ = -1;  // block of the last Linear-2 tile, while its activations may still be read
  int loads_until_read_ = 0;
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

__device__ inline std::int64_t claim_of(const Block& block, int turn) {
  const std::int64_t first = block.counts.num_dispatch();
  if (block.params.claim == Claim::fixed) return first + block.part.block + std::int64_t{turn} * block.part.num_blocks;
  // Orders nothing: what a task needs, its flags say.
  return first + static_cast<std::int64_t>(device::relaxed_add<cuda::thread_scope_device>(*block.rank.next_claim, 1));
}

// A claimed task, as far as it is known before it may begin.
struct Claimed {
  Queued queued;
  bool is_ready;  // what it needs is there
};

// A flag that a tile waits for: rows of its block, or all of its activations; where activations stand in a ring also
// that those before them in their slot have been read.
struct Need {
  std::int32_t flag;
  Word count;
};
__device__ inline Need need_of(const Block& block, const Queued& queued) {
  const std::int32_t row_block = queued.of.block;
  if (is(TaskKind::linear1, queued)) {
    return {block.params.arrived + row_block, static_cast<Word>(block.rank.arriving[row_block])};
  }
  return {block.params.activated + row_block, static_cast<Word>(block.counts.linear1_tiles)};
}

__device__ inline bool needs_slot(const Block& block, const Queued& queued) {
  return is(TaskKind::linear1, queued) && block.rank.slots != nullptr && block.rank.taken_from[queued.of.block] >= 0;
}
__device__ inline Need slot_need_of(const Block& block, const Queued& queued) {
  return {block.params.released + block.rank.taken_from[queued.of.block],
          static_cast<Word>(block.counts.linear2_tiles)};
}

// Looks once for what it needs.
__device__ inline Claimed look_up(const Block& block, std::int64_t claim) {
  Claimed claimed{{Queued::task, {}, 0, claim}, true};
  auto& queued = claimed.queued;
  if (claim >= block.counts.num_tasks()) return claimed;
  queued.of = task_at(block.params.order, block.counts, claim);
  if (!is_linear(queued)) return claimed;
  queued.group = group_of_block(block.counts, queued.of.block);
  const Need need = need_of(block, queued);
  claimed.is_ready = block.signals().is_there(need.flag, need.count);
  if (claimed.is_ready && needs_slot(block, queued)) {
    const Need slot = slot_need_of(block, queued);
    claimed.is_ready = block.signals().is_there(slot.flag, slot.count);
  }
  return claimed;
}

// False: give up.
__device__ inline bool wait_for_need(const Block& block, const Claimed& claimed, OperandLoader& loader) {
  if (!is_linear(claimed.queued)) return true;
  if (!claimed.is_ready) {
    loader.finish();
    const Need need = need_of(block, claimed.queued);
    if (!block.signals().wait(need.flag, need.count)) return false;
    if (needs_slot(block, claimed.queued)) {
      const Need slot = slot_need_of(block, claimed.queued);
      if (!block.signals().wait(slot.flag, slot.count)) return false;
    }
  }
  fence_before_loads();  // written by ordinary stores
  return true;
}

__device__ inline std::int32_t rows_from(const Block& block, int holder) {
  if (block.params.rows_to == RowsTo::owners) return block.rank.rows_by_holder[holder];
  return block.params.rows_to == RowsTo::own && holder == block.signals().rank() ? block.rank.num_rows : 0;
}

// All rows of this rank's tokens are there. False: give up.
__device__ inline bool wait_for_rows(const Block& block) {
  const auto& signals = block.signals();
  for (int peer = 0; peer < signals.num_ranks(); ++peer) {
    const auto rows = std::int64_t{rows_from(block, peer)} * block.counts.linear2_tiles;
    if (!signals.wait(block.params.combined + peer, static_cast<Word>(rows))) return false;
  }
  fence_before_loads();  // they were written by ordinary stores
  return true;
}

// Warp 0; one of its threads works.
__device__ inline void load_role(const Block& block) {
  if (threadIdx.x != 0) return;
  OperandLoader loader(block);
  TaskWriter tasks(block.shared);
  bool all_rows = false;
  // The next claim is on its way, and what it needs is looked for, while the last operands of a tile are loaded.
  Claimed next = look_up(block, claim_of(block, 0));
  for (int turn = 1; block.counts.num_tasks() > next.queued.claim; ++turn) {
    const Queued queued = next.queued;
    if (!wait_for_need(block, next, loader)) break;
    if (is(TaskKind::reduce, queued) && !all_rows) {
      tasks.write({Queued::rows_end, {}, 0, 0});  // before the wait, which is for this block's rows, too
      loader.finish();
      if (!wait_for_rows(block)) break;
      all_rows = true;
    }
    tasks.write(queued);
    std::int64_t next_claim = 0;
    const auto early = [&] { next_claim = claim_of(block, turn); };
    const auto late = [&] { next = look_up(block, next_claim); };
    if (is_linear(queued)) {
      loader.load_tile(queued, early, late);
      continue;
    }
    early();
    loader.load_slots(queued.of.block);
    late();
  }
  loader.finish();
  tasks.write({Queued::end, {}, 0, 0});
}

}  // namespace xs::moe
