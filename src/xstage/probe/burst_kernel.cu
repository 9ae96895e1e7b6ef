#include "xstage/probe/burst_kernel.hpp"

#include <cooperative_groups.h>

#include "xstage/probe/probe_staging.cuh"
#include "xstage/tile/sm_clock.cuh"

namespace xs {
namespace {

struct BurstParams {
  CUtensorMap rows;
  StoreWindows windows;
  std::int64_t bytes, gap;
  int bursts;
  Completion await;
  BurstRecord* records;
  std::uint32_t* sms;
};

template <StorePath path>
__global__ void __launch_bounds__(256, 1) burst_kernel(const __grid_constant__ BurstParams params) {
  extern __shared__ __align__(128) std::byte staging[];
  __shared__ BurstRecord records[kMostBursts];
  const auto group = StoreGroup::block();
  const StoreTarget target{params.windows.base, &params.rows};
  const std::int64_t window = params.windows.window_bytes * blockIdx.x;
  fill_staging<path>(group, staging);
  cooperative_groups::this_grid().sync();
  std::int64_t before = sm_cycles();
  for (int burst = 0; burst < params.bursts; ++burst) {
    if (group.leads() && burst > 0) wait_until(before + params.gap);
    group.sync();
    const std::int64_t begin = sm_cycles();
    std::int64_t place = 0;
    store_piece<path>(group, target, window, params.windows.window_bytes, place, params.bytes, staging,
                      params.windows.copy_bytes);
    group.sync();
    const std::int64_t issued = sm_cycles();
    if (params.await == Completion::source_free) wait_source_free<path>(group);
    if (params.await == Completion::remote_visible) wait_remote_visible<path>(group);
    const std::int64_t done = params.await == Completion::issued ? issued : sm_cycles();
    if (group.leads()) {
      records[burst] = {static_cast<std::uint32_t>(burst == 0 ? 0 : begin - before),
                        static_cast<std::uint32_t>(issued - begin), static_cast<std::uint32_t>(done - issued)};
    }
    before = done;
  }
  wait_remote_visible<path>(group);
  if (group.leads()) params.sms[blockIdx.x] = sm_id();
  for (int burst = group.rank; burst < params.bursts; burst += group.size) {
    params.records[std::int64_t{blockIdx.x} * params.bursts + burst] = records[burst];
  }
}

__global__ void clock_kernel(ClockRecord* record) {
  constexpr std::int64_t kNanos = 2000000;
  const std::int64_t begin = gpu_nanos(), cycles = sm_cycles();
  std::int64_t now = begin;
  while (now - begin < kNanos) now = gpu_nanos();
  *record = {sm_cycles() - cycles, now - begin};
}

}  // namespace

void launch_clock(ClockRecord* record, cudaStream_t stream) {
  clock_kernel<<<1, 1, 0, stream>>>(record);
  check_cuda(cudaGetLastError(), "starting a clock");
}

void launch_bursts(const StoreWindows& windows, const BurstPattern& pattern, BurstRecord* records, std::uint32_t* sms,
                   cudaStream_t stream) {
  BurstParams params{};
  params.windows = windows;
  params.bytes = static_cast<std::int64_t>(pattern.bytes.value);
  params.gap = static_cast<std::int64_t>(pattern.gap.value);
  params.bursts = pattern.bursts;
  params.await = pattern.await;
  params.records = records;
  params.sms = sms;
  with_path(windows.path, [&](auto path) {
    if constexpr (path.value == StorePath::tensor) {
      params.rows = map_rows(windows.base, windows.window_bytes * windows.workers, windows.copy_bytes);
    }
    launch_aligned(burst_kernel<path.value>, params, pattern.workers, storing_threads(path.value), stream);
  });
}

}  // namespace xs
