#include "xstage/probe/neighbour_kernel.hpp"

#include <cooperative_groups.h>

#include "xstage/probe/probe_staging.cuh"
#include "xstage/tile/pacer.cuh"

namespace xs {
namespace {

constexpr int kThreads = 256;

struct NeighbourParams {
  CUtensorMap rows;
  NeighbourRun run;
  NeighbourRecord* records;
};

template <StorePath path>
__device__ std::int64_t store_until(const NeighbourParams& params, std::int64_t end, std::byte* staging) {
  const auto& run = params.run;
  const auto group = StoreGroup::block();
  const StoreTarget target{run.windows.base, &params.rows};
  const std::int64_t window = run.windows.window_bytes * blockIdx.x;
  // Two, so that the leader may go on while others still read the last one: one barrier for each piece.
  __shared__ bool done[2];
  // In turn: the n-th of n begins (n - 1) / n of a piece's time after the first. Paced to 95 % of the drain, eight SMs
  // that begin together leave others 93 % of their loads, in turn 97 % (H200, 2026-12-04).
  const Bytes piece{static_cast<double>(run.piece_bytes)};
  SmPacer pacer(run.share, run.clock,
                run.share.capacity - piece * (1.0 - static_cast<double>(blockIdx.x) / run.storers));
  std::int64_t stored = 0, place = 0;
  for (int turn = 0;; turn ^= 1, stored += run.piece_bytes) {
    if (group.leads()) {
      if (run.paced) pacer.pace(piece);
      done[turn] = sm_cycles() >= end;
    }
    group.sync();
    if (done[turn]) break;
    store_piece<path>(group, target, window, run.windows.window_bytes, place, run.piece_bytes, staging,
                      run.windows.copy_bytes);
  }
  wait_remote_visible<path>(group);
  return stored;
}

// Past the SM's own cache: every load goes to the shared one, and behind it where the operands are larger.
__device__ std::int64_t load_until(const NeighbourRun& run, int loader, std::int64_t end) {
  constexpr int kUnroll = 8;
  constexpr std::int64_t kStep = std::int64_t{kThreads} * kUnroll;
  const auto* words = reinterpret_cast<const uint4*>(run.operands);
  const std::int64_t steps = run.operand_bytes / static_cast<std::int64_t>(sizeof(uint4)) / kStep;
  std::int64_t step = steps * loader / run.loaders, loaded = 0;
  std::uint32_t mixed = 0;
  while (sm_cycles() < end) {
    uint4 values[kUnroll];
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) values[i] = __ldcg(words + step * kStep + i * kThreads + threadIdx.x);
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) mixed ^= values[i].x ^ values[i].y ^ values[i].z ^ values[i].w;
    loaded += kUnroll * static_cast<std::int64_t>(sizeof(uint4));
    step = step + 1 == steps ? 0 : step + 1;
  }
  // The operands are zeros; a load whose value nobody looks at would not be one.
  return mixed == 0 ? loaded : -1;
}

template <StorePath path>
__global__ void __launch_bounds__(kThreads, 1) neighbour_kernel(const __grid_constant__ NeighbourParams params) {
  extern __shared__ __align__(128) std::byte staging[];
  const auto& run = params.run;
  const int worker = static_cast<int>(blockIdx.x);
  fill_staging<path>(StoreGroup::block(), staging);
  cooperative_groups::this_grid().sync();
  const std::int64_t begin = gpu_nanos();
  const std::int64_t end = sm_cycles() + static_cast<std::int64_t>((run.duration * run.clock).value);
  std::int64_t bytes = 0;
  if (worker < run.storers) {
    const std::int64_t stored = store_until<path>(params, end, staging);
    if (threadIdx.x == 0) bytes = stored;
  } else {
    bytes = load_until(run, worker - run.storers, end);
  }
  auto& record = params.records[worker];
  atomicAdd(reinterpret_cast<unsigned long long*>(&record.bytes), static_cast<unsigned long long>(bytes));
  __syncthreads();
  if (threadIdx.x == 0) record.nanos = gpu_nanos() - begin;
}

}  // namespace

void launch_neighbours(const NeighbourRun& run, NeighbourRecord* records, cudaStream_t stream) {
  NeighbourParams params{};
  params.run = run;
  params.records = records;
  with_path(run.windows.path, [&](auto path) {
    if constexpr (path.value == StorePath::tensor) {
      params.rows = map_rows(run.windows.base, run.windows.window_bytes * run.windows.workers, run.windows.copy_bytes);
    }
    launch_aligned(neighbour_kernel<path.value>, params, run.storers + run.loaders, kThreads, stream);
  });
}

}  // namespace xs
