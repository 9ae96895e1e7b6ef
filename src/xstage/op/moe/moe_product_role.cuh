#pragma once

#include "xstage/op/moe/moe_kernel.cuh"

namespace xs::moe {

__device__ inline float swiglu(float gate, float up, float clamp) {
  gate = fminf(gate, clamp);
  up = fminf(fmaxf(up, -clamp), clamp);
  return __fdividef(gate, 1.0f + __expf(-gate)) * up;
}

// Sums of 16 columns of a finished tile, rounded: of both products, or of gate and up as one.
__device__ inline void stage_sums(std::byte* staging, int warp, const float (&sums)[128]) {
#pragma unroll
  for (int j = 0; j < kStagedColumns / 16; ++j) {
    float part[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) part[i] = sums[j * 8 + i];
    stage_16_columns(staging, warp, j * 16, part);
  }
}

__device__ inline void stage_activations(std::byte* staging, int warp, const float (&sums)[128], float clamp) {
#pragma unroll
  for (int j = 0; j < kStagedColumns / 32; ++j) {
    float part[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) part[i] = swiglu(sums[j * 8 + i], sums[64 + j * 8 + i], clamp);
    stage_16_columns(staging, warp, j * 16, part);
  }
}

// The operand ring as both warpgroups read it.
class OperandReader {
 public:
  __device__ OperandReader(BlockShared& shared, bool speaks) : shared_(shared), speaks_(speaks) {}

  // Waits for what the loader put next; `waited`, if counted, grows by the cycles that took.
  __device__ int next(bool counts, std::uint32_t& waited) {
    if (counts) waited -= static_cast<std::uint32_t>(sm_cycles());
    shared_.full[stage_].wait(phase_of(use_));
    if (counts) waited += static_cast<std::uint32_t>(sm_cycles());
    const int stage = stage_;
    if (++stage_ == kStages) stage_ = 0, ++use_;
    return stage;
  }
  // This warp is done with it: read by products, or by its lanes. These arrive one by one, for a tool that looks for
  // races would not know that one of them speaks for all.
  __device__ void give_back_operands(int stage) {
    if (speaks_) shared_.free[stage].arrive(32);
  }
  __device__ void give_back_slots(int stage) { shared_.free[stage].arrive(); }

 private:
  BlockShared& shared_;
  bool speaks_;
  int stage_ = 0, use_ = 0;
};

// One warpgroup's rows of finished tiles on their way to the warps that store them.
class StagingWriter {
 public:
  __device__ StagingWriter(BlockShared& shared, int half, bool speaks)
      : shared_(shared), half_(half), speaks_(speaks) {}

  // What stood there has been stored.
  __device__ std::byte* begin() {
    if (was_activations_) {
      shared_.drained_activations[half_].wait(phase_of(activations_ - 1));
    } else if (rows_ > 0) {
      shared_.drained_rows[half_].wait(phase_of(rows_ - 1));
    }
    return shared_.staging[half_];
  }
  // This warp has written its part.
  __device__ void end(bool are_activations) {
    __syncwarp();
    if (speaks_) (are_activations ? shared_.staged_activations : shared_.staged_rows)[half_].arrive();
    ++(are_activations ? activations_ : rows_);
    was_activations_ = are_activations;
  }

 private:
  BlockShared& shared_;
  int half_;
  bool speaks_, was_activations_ = false;
  int activations_ = 0, rows_ = 0;
};

// Tokens of a chunk: slots in their order, so the sum depends on no schedule. Both warpgroups; each thread has the same
// pieces of 16 bytes of every slot.
__device__ inline void sum_tokens(const Block& block, int chunk, OperandReader& operands, bool counts,
                                  std::uint32_t& waited) {
  constexpr int kThreadsOfSum = 2 * kProductWarps * 32, kPieces = kSumColumns / 8 / kThreadsOfSum;
  const auto& params = block.params;
  const auto& rank = block.rank;
  const int thread = static_cast<int>(threadIdx.x) - (kThreads - kThreadsOfSum);
  const auto [first, end] = tokens_of_chunk(rank, chunk);
  for (int token = first; token < end; ++token) {
    for (int column = 0; column < params.hidden; column += kSumColumns) {
      const int pieces = ::min(kSumColumns, params.hidden - column) / 8;
      float sums[kPieces][8] = {};
      for (int slot = 0; slot < params.num_slots; slot += kSumSlots) {
        const int stage = operands.next(counts, waited);
        const SumStage& of = block.shared.sums[stage];
        const auto* words = reinterpret_cast<const uint4*>(block.shared.operands[stage]);
        for (int i = 0, count = of.count; i < count; ++i, words += pieces) {
          const float weight = of.weights[i];
#pragma unroll
          for (int p = 0; p < kPieces; ++p) {
            const int piece = thread + p * kThreadsOfSum;
            if (piece >= pieces) continue;
            const uint4 word = words[piece];
            const auto* values = reinterpret_cast<const __nv_bfloat162*>(&word);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
              const float2 pair = __bfloat1622float2(values[j]);
              sums[p][2 * j] += weight * pair.x;
              sums[p][2 * j + 1] += weight * pair.y;
            }
          }
        }
        operands.give_back_slots(stage);
      }
      auto* output = reinterpret_cast<uint4*>(rank.output + (std::int64_t{token} * params.hidden + column) * 2);
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        const int piece = thread + p * kThreadsOfSum;
        const float* sum = sums[p];
        const uint4 word = {pack_bf16(sum[0], sum[1]), pack_bf16(sum[2], sum[3]), pack_bf16(sum[4], sum[5]),
                            pack_bf16(sum[6], sum[7])};
        if (piece < pieces) output[piece] = word;
      }
    }
  }
}

// Warps 4 to 11: warpgroup `half` has 64 rows of every tile.
__device__ inline void product_role(const Block& block, int half) {
  const auto& params = block.params;
  auto& shared = block.shared;
  const int thread = static_cast<int>(threadIdx.x) % 128, warp = thread / 32;
  const bool speaks = thread % 32 == 0, stamps = block.rank.stamps != nullptr;
  const std::int64_t began = sm_cycles();
  TaskReader tasks(block);
  Queued queued;
  OperandReader operands(shared, speaks);
  StagingWriter staging(shared, half, speaks);
  while (tasks.next(queued)) {
    const std::int64_t begin = sm_cycles();
    std::uint32_t waited = 0, stalled = 0;  // wrap as the clock's low half does
    if (is(TaskKind::reduce, queued)) {
      sum_tokens(block, queued.of.block, operands, stamps, waited);
    } else if (is_linear(queued)) {
      const bool is_linear1 = is(TaskKind::linear1, queued);
      const int steps = (is_linear1 ? params.hidden : params.intermediate) + kProductDepth - 1;
      float sums[128];
      int before = -1;  // the stage of the last step
      for (int step = 0; step < steps / kProductDepth; ++step) {
        const int stage = operands.next(stamps, waited);
        const std::byte* const operand = shared.operands[stage];
        const ProductOperand rows(operand + half * kStagedRows * 128), columns(operand + kRowBoxBytes);
        multiply(sums, rows, columns, step > 0);
        wait_for_all_but_last();
        if (before >= 0) operands.give_back_operands(before);
        before = stage;
      }
      wait_for_products(sums);
      operands.give_back_operands(before);
      if (stamps) stalled -= static_cast<std::uint32_t>(sm_cycles());
      std::byte* const free = staging.begin();
      if (stamps) stalled += static_cast<std::uint32_t>(sm_cycles());
      is_linear1 ? stage_activations(free, warp, sums, params.clamp) : stage_sums(free, warp, sums);
      staging.end(is_linear1);
    }
    if (stamps && queued.what == Queued::task && half == 0 && thread == 0) {
      block.rank.stamps[queued.claim] = {static_cast<std::int32_t>(queued.of.kind),
                                         queued.of.block,
                                         queued.of.tile,
                                         block.part.block,
                                         begin - began,
                                         sm_cycles() - began,
                                         waited,
                                         stalled};
    }
  }
}

}  // namespace xs::moe
