#pragma once

#include "xstage/op/moe/moe_kernel.cuh"

namespace xs::moe {

__device__ inline float swiglu(float gate, float up, float clamp) {
  gate = fminf(gate, clamp);
  up = fminf(fmaxf(up, -clamp), clamp);
  return gate / (1.0f + __expf(-gate)) * up;
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

// Tokens of a chunk: slots in their order, so the sum depends on no schedule. Both warpgroups.
__device__ inline void sum_tokens(const Block& block, int chunk) {
  const auto& params = block.params;
  const auto& rank = block.rank;
  const std::byte* slots = params.slot_parts[block.signals().rank()] + params.slots;
  const int first = chunk * kGpuTiling.reduce_tokens, end = ::min(first + kGpuTiling.reduce_tokens, rank.num_tokens);
  const std::int64_t pitch = std::int64_t{params.hidden} * 2;
  constexpr int kSumThreads = 2 * kProductWarps * 32;
  for (int token = first; token < end; ++token) {
    for (int place = (static_cast<int>(threadIdx.x) - (kThreads - kSumThreads)) * 16; place < pitch;
         place += kSumThreads * 16) {
      float sum[8] = {};
      for (int s = 0; s < params.num_slots; ++s) {
        const std::int64_t slot = std::int64_t{token} * params.num_slots + s;
        if (rank.slot_experts[slot] < 0) continue;
        const float weight = rank.slot_weights[slot];
        const uint4 words = *reinterpret_cast<const uint4*>(slots + slot * pitch + place);
        const auto* values = reinterpret_cast<const __nv_bfloat162*>(&words);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 pair = __bfloat1622float2(values[i]);
          sum[2 * i] += weight * pair.x;
          sum[2 * i + 1] += weight * pair.y;
        }
      }
      uint4 words = {pack_bf16(sum[0], sum[1]), pack_bf16(sum[2], sum[3]), pack_bf16(sum[4], sum[5]),
                     pack_bf16(sum[6], sum[7])};
      *reinterpret_cast<uint4*>(rank.output + token * pitch + place) = words;
    }
  }
}

// Warps 4 to 11: warpgroup `half` has 64 rows of every tile.
__device__ inline void product_role(const Block& block, int half) {
  const auto& params = block.params;
  auto& shared = block.shared;
  const int thread = static_cast<int>(threadIdx.x) % 128, warp = thread / 32;
  const bool speaks = thread % 32 == 0;
  const std::int64_t began = sm_cycles();
  TaskReader tasks(block);
  Queued queued;
  for (int stage = 0, use = 0, outputs = 0; tasks.next(queued);) {
    const std::int64_t begin = sm_cycles();
    if (is(TaskKind::reduce, queued)) {
      sum_tokens(block, queued.of.block);
    } else if (is_linear(queued)) {
      const bool is_linear1 = is(TaskKind::linear1, queued);
      const int steps = (is_linear1 ? params.hidden : params.intermediate) + kProductDepth - 1;
      float sums[128];
      int before = -1;  // the stage of the last step
      for (int step = 0; step < steps / kProductDepth; ++step) {
        shared.full[stage].wait(phase_of(use));
        const ProductOperand rows(shared.rows[stage] + half * kStagedRows * 128), columns(shared.columns[stage]);
        multiply(sums, rows, columns, step > 0);
        wait_for_all_but_last();
        if (before >= 0 && speaks) shared.free[before].arrive();
        before = stage;
        if (++stage == kStages) stage = 0, ++use;
      }
      wait_for_products(sums);
      if (speaks) shared.free[before].arrive();
      const int output = outputs++;
      if (output > 0) shared.drained[half].wait(phase_of(output - 1));
      std::byte* const staging = shared.staging[half];
      is_linear1 ? stage_activations(staging, warp, sums, params.clamp) : stage_sums(staging, warp, sums);
      __syncwarp();
      if (speaks) shared.staged[half].arrive();
    }
    if (block.rank.stamps != nullptr && queued.what == Queued::task && half == 0 && thread == 0) {
      block.rank.stamps[queued.claim] = {static_cast<std::int32_t>(queued.of.kind),
                                         queued.of.block,
                                         queued.of.tile,
                                         block.part.block,
                                         begin - began,
                                         sm_cycles() - began};
    }
  }
}

}  // namespace xs::moe
