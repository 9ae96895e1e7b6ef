#pragma once

#include "xstage/op/moe/moe_kernel.hpp"
#include "xstage/signal/device_signals.cuh"
#include "xstage/tile/mbarrier.cuh"
#include "xstage/tile/pacer.cuh"
#include "xstage/tile/row_staging.cuh"
#include "xstage/tile/sm_clock.cuh"
#include "xstage/tile/tensor_load.cuh"
#include "xstage/tile/wgmma.cuh"

// What the roles of a block share. A block is one worker of its rank: three warpgroups,
//
//   warp 0        claims tasks, waits for what they need, loads their operands            load_role()
//   warp 1        stores activations of Linear-1 tiles and says so                        activation_role()
//   warps 2, 3    store rows of Linear-2 tiles at their owners, one warp for each half;   row_role()
//                 meanwhile they dispatch tokens to the holders of their experts
//   warps 4 – 11  two warpgroups with 64 rows each: products; the final sums of tokens    product_role()
//
// Handed over between them, all through barriers in shared memory: tasks (queue), operands and slots to be summed (a
// ring of stages), finished rows (staging). Warps that store into a link that is full stall alone: products of the next
// tile go on meanwhile. Activations and rows of peers have warps of their own, since a release waits for all stores of
// its thread. Dispatch tasks, which every order begins with, are nobody's claim: block b has the tasks b, b + blocks,
// …, and its warps 2 and 3 send a row of them whenever no tile is there to be stored. Claims are of what stands behind.
//
// Only warp 0 waits for other blocks, and that is bounded: when it gives up it hands over that there are no more tasks,
// and all roles end. Waits inside the block end by themselves: a tile is handed over when its operands can be loaded,
// loads and stores come to their end, and what is left to wait for is the role before in this circle: task, operands,
// products, rows stored, next task. What peers wait for is dispatched meanwhile: warps 2 and 3 wait for a task only
// when they have sent all.

namespace xs::moe {

inline constexpr int kStages = 3;
inline constexpr int kThreads = 384, kProductWarps = 4;  // of a warpgroup
inline constexpr int kQueued = 2;
inline constexpr int kRowBoxBytes = 128 * kProductDepth * 2, kStageBytes = 3 * kRowBoxBytes;

// A stage with slots to be summed instead: so many columns of up to so many slots of one token.
inline constexpr int kSumColumns = 4096, kSumSlots = kStageBytes / (kSumColumns * 2);
struct SumStage {
  float weights[kSumSlots];
  std::int32_t count;
};

struct Queued {
  enum What : std::int32_t {
    task,
    rows_end,  // no further Linear-2 tile comes
    end,       // no further task comes
  };
  What what;
  Task of;
  std::int32_t group;
  std::int64_t claim;
};

struct alignas(1024) BlockShared {
  std::byte operands[kStages][kStageBytes];  // 128 rows, then 256 columns
  std::byte staging[2][kStagedBytes];
  alignas(16) Queued queue[kQueued];
  Mbarrier queued[kQueued], taken[kQueued];  // task is there; every role has read it
  SumStage sums[kStages];
  Mbarrier full[kStages], free[kStages];
  // Of each half, of activations and of rows: they are there; the warp that stores them is done with them.
  Mbarrier staged_activations[2], drained_activations[2], staged_rows[2], drained_rows[2];
  alignas(16) unsigned char signals[sizeof(DeviceSignals)];
  alignas(16) unsigned char pacers[2][sizeof(SmPacer)];  // of warps 2 and 3, if they are paced
  std::int32_t group_blocks[1];                          // [groups + 1]; the order looks often
};

// One role's view of its block.
struct Block {
  const LayerParams& params;
  const RankLayer& rank;
  BlockShared& shared;
  Counts counts;
  GridPart part;

  __device__ const DeviceSignals& signals() const { return *reinterpret_cast<const DeviceSignals*>(shared.signals); }
  // Where the activations of a tile's block stand.
  __device__ std::int32_t slot(const Queued& tile) const {
    return rank.slots == nullptr ? tile.of.block : rank.slots[tile.of.block];
  }
  // Before so many bytes go to peers through warp 2 + half, which calls it with all threads.
  __device__ void pace(int half, int bytes) const {
    if (params.pace.drain.value <= 0 || bytes == 0) return;
    if (threadIdx.x % 32 == 0) reinterpret_cast<SmPacer*>(shared.pacers[half])->pace({static_cast<double>(bytes)});
    __syncwarp();
  }
};

struct TokenRange {
  int first, end;
};
__device__ inline TokenRange tokens_of_chunk(const RankLayer& rank, int chunk) {
  const int first = chunk * kGpuTiling.reduce_tokens;
  return {first, ::min(first + kGpuTiling.reduce_tokens, rank.num_tokens)};
}

// A role's way through the block's tasks. Called by all threads of a warp.
class TaskReader {
 public:
  __device__ explicit TaskReader(const Block& block) : block_(block) {}
  // Whether next() need not wait. The same for all threads.
  __device__ bool is_there() const {
    return __all_sync(0xffffffffu, block_.shared.queued[count_ % kQueued].is_over(phase_of(count_ / kQueued)));
  }
  // False: there is none any more.
  __device__ bool next(Queued& queued) {
    auto& shared = block_.shared;
    const int place = count_ % kQueued;
    shared.queued[place].wait(phase_of(count_ / kQueued));
    // From one lane, so that the compiler knows that all have the same.
    const auto same = [](int value) { return __shfl_sync(0xffffffffu, value, 0); };
    const Queued& there = shared.queue[place];
    queued = {static_cast<Queued::What>(same(there.what)),
              {static_cast<TaskKind>(same(static_cast<int>(there.of.kind))), same(there.of.block), same(there.of.tile)},
              same(there.group),
              there.claim};
    shared.taken[place].arrive();
    ++count_;
    return queued.what != Queued::end;
  }

 private:
  const Block& block_;
  int count_ = 0;
};

__device__ inline bool is(TaskKind kind, const Queued& queued) {
  return queued.what == Queued::task && queued.of.kind == kind;
}
__device__ inline bool is_linear(const Queued& queued) {
  return is(TaskKind::linear1, queued) || is(TaskKind::linear2, queued);
}

}  // namespace xs::moe
