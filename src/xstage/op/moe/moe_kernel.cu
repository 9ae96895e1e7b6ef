#include <new>

#include "xstage/mem/cuda_check.hpp"
#include "xstage/op/moe/moe_load_role.cuh"
#include "xstage/op/moe/moe_product_role.cuh"
#include "xstage/op/moe/moe_store_roles.cuh"

namespace xs::moe {
namespace {

// Of a thread: of the four warps that store or load, and of the eight that hold sums. What the first give back must be
// enough for the others, who wait for it for ever otherwise; the compiler gives every thread kAtStart.
constexpr int kAtStart = 65536 / kThreads / 8 * 8, kFewRegisters = 88, kManyRegisters = 208;
static_assert(4 * kFewRegisters + 8 * kManyRegisters <= 12 * kAtStart);

__device__ BlockShared& block_shared() {
  extern __shared__ __align__(1024) std::byte memory[];
  return *reinterpret_cast<BlockShared*>(memory);
}

__device__ void set_up(BlockShared& shared, const LayerParams& params, const GridPart& part) {
  const Counts& counts = params.ranks[part.part].counts;
  for (int i = static_cast<int>(threadIdx.x); i <= counts.num_groups; i += kThreads) {
    shared.group_blocks[i] = counts.group_blocks[i];
  }
  if (threadIdx.x == 0) {
    for (int i = 0; i < kQueued; ++i) {
      shared.queued[i].init(1);
      shared.taken[i].init((3 + 2 * kProductWarps) * 32);
    }
    for (int i = 0; i < kStages; ++i) {
      shared.full[i].init(1);
      shared.free[i].init(2 * kProductWarps * 32);
    }
    for (int half = 0; half < 2; ++half) {
      for (auto* staged : {&shared.staged_activations[half], &shared.staged_rows[half]}) staged->init(kProductWarps);
      for (auto* drained : {&shared.drained_activations[half], &shared.drained_rows[half]}) drained->init(1);
    }
    new (shared.signals) DeviceSignals(params.tables[part.part]);
    if (params.pace.drain.value > 0) {
      // The warps' pieces are of one size: they begin in turn, not all at once.
      const double senders = 2.0 * part.num_blocks;
      for (int half = 0; half < 2; ++half) {
        new (shared.pacers[half])
            SmPacer(params.pace, params.clock, params.pace.capacity * ((2 * part.block + half) / senders));
      }
    }
    publish_barriers();
  }
  __syncthreads();
}

__global__ void __launch_bounds__(kThreads, 1) layer_kernel(const __grid_constant__ LayerParams params) {
  BlockShared& shared = block_shared();
  const GridPart part = part_of(static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x), params.num_parts);
  set_up(shared, params, part);
  Block block{params, params.ranks[part.part], shared, params.ranks[part.part].counts, part};
  block.counts.group_blocks = shared.group_blocks;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (warp < 4) {
    give_registers_back<kFewRegisters>();
    if (warp == 0) {
      load_role(block);
    } else if (warp == 1) {
      activation_role(block);
    } else {
      row_role(block, warp - 2);
    }
  } else {
    take_registers<kManyRegisters>();
    product_role(block, warp / 4 - 1);
  }
  __syncwarp();
  DeviceSignals signals = block.signals();
  if (!signals.close_epoch(part.num_blocks)) return;
  // All blocks of the rank have made their last claim.
  if (part.block == 0 && threadIdx.x == 0) *block.rank.next_claim = 0;
}

__global__ void absent_kernel(const SignalTable* tables, int rank) {
  const int absent = static_cast<int>(threadIdx.x);
  if (absent != rank) DeviceSignals(tables[absent]).arrive_without_running(rank);
}

// Two numbers a word: sign, an exponent of 2^-1 to 2^-4, a mantissa.
__global__ void fill_kernel(std::uint32_t* words, std::size_t count, std::uint64_t seed) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x) {
    std::uint64_t mixed = (i + seed) * 0x9e3779b97f4a7c15ull;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9ull;
    mixed ^= mixed >> 31;
    const auto half = [](std::uint32_t bits) { return (bits & 0x807fu) | (123u + (bits >> 8 & 3u)) << 7; };
    words[i] = half(static_cast<std::uint32_t>(mixed)) | half(static_cast<std::uint32_t>(mixed >> 32)) << 16;
  }
}

}  // namespace

void launch_random_fill(std::byte* target, std::size_t bytes, std::uint64_t seed, cudaStream_t stream) {
  fill_kernel<<<1024, 256, 0, stream>>>(reinterpret_cast<std::uint32_t*>(target), bytes / 4, seed);
  check_cuda(cudaGetLastError(), "random numbers");
}

void launch_absent(const SignalTable* tables, int num_ranks, int rank, cudaStream_t stream) {
  absent_kernel<<<1, static_cast<unsigned>(num_ranks), 0, stream>>>(tables, rank);
  check_cuda(cudaGetLastError(), "arrivals of absent ranks");
}

KernelNeeds layer_kernel_needs(int most_groups) {
  return {reinterpret_cast<const void*>(layer_kernel), kThreads,
          sizeof(BlockShared) + static_cast<std::size_t>(most_groups) * sizeof(std::int32_t)};
}

void launch_layer(const LayerParams& params, int num_blocks, int most_groups, cudaStream_t stream) {
  const auto needs = layer_kernel_needs(most_groups);
  check_cuda(cudaFuncSetAttribute(needs.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(needs.shared_bytes)),
             "shared memory of the layer's kernel");
  LayerParams copy = params;
  void* arguments[] = {&copy};
  check_cuda(cudaLaunchCooperativeKernel(needs.kernel, dim3(static_cast<unsigned>(num_blocks)), dim3(kThreads),
                                         arguments, needs.shared_bytes, stream),
             "starting the layer's kernel");
}

}  // namespace xs::moe
