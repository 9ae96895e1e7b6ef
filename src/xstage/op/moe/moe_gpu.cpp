#include "xstage/op/moe/moe_gpu.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "xstage/core/error.hpp"
#include "xstage/op/moe/gpu_tiling.hpp"

namespace xs::moe {

MoeProblem make_gpu_problem(const MoeShape& shape, int num_ranks, const Routing& routing, MoePlacement placement) {
  // About so many rows a task: a warp takes 2 us a row of 14 KiB (H200), what waits for the first rows waits for all of
  // their task, and the more tasks the more evenly blocks share them.
  constexpr std::int64_t kRows = 8, kMostParts = 128;
  MoeTiling tiling = kGpuTiling;
  const auto rows = routing.num_tokens * shape.topk / (std::int64_t{shape.num_experts} * std::max(1, num_ranks));
  tiling.dispatch_parts = static_cast<int>(std::clamp<std::int64_t>(rows / kRows, 1, kMostParts));
  return make_problem(shape, tiling, num_ranks, routing, std::move(placement));
}

std::string wrong_task(const Inputs& inputs, const GpuRunOptions& options, const GpuRunResult& result) {
  const auto problem = make_gpu_problem(inputs.shape, options.num_ranks, inputs.routing, options.placement);
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    const auto expected = expand(options.order, problem.counts(rank));
    const auto& done = result.tasks[static_cast<std::size_t>(rank)];
    if (done.size() != expected.size()) {
      return fmt::format("rank {} did {} tasks, the schedule has {}", rank, done.size(), expected.size());
    }
    for (std::size_t claim = 0; claim < expected.size(); ++claim) {
      if (done[claim].task == expected[claim]) continue;
      return fmt::format("claim {} of rank {} is another task than in the schedule", claim, rank);
    }
  }
  return "";
}

WorkerShares worker_shares(std::span<const GpuTask> tasks, int num_workers) {
  WorkerShares shares;
  for (const auto& task : tasks) shares.longest = max(shares.longest, task.end);
  const Cycles all = shares.longest * num_workers;
  shares.rest = 1;
  for (const auto& task : tasks) {
    if (task.task.kind == TaskKind::dispatch) continue;  // beside the worker
    const double took = (task.end - task.begin) / all;
    shares.rest -= took;
    if (task.task.kind == TaskKind::reduce) {
      shares.reduce += took;
    } else {
      (task.task.kind == TaskKind::linear1 ? shares.linear1 : shares.linear2) +=
          took - (task.waited + task.stalled) / all;
      shares.operand_stall += task.waited / all;
      shares.sender_stall += task.stalled / all;
    }
  }
  return shares;
}

Timeline timeline_of(const GpuRunResult& result) {
  Timeline timeline;
  timeline.num_ranks = static_cast<int>(result.tasks.size());
  timeline.workers_per_rank = result.workers_per_rank;
  timeline.makespan = result.stamped;
  Cycles longest{1};
  for (const auto& rank : result.tasks) {
    for (const auto& task : rank) longest = max(longest, task.end);
  }
  const auto nanos = [&](Cycles cycles) { return result.stamped * (cycles / longest); };
  for (std::int32_t rank = 0; rank < timeline.num_ranks; ++rank) {
    const auto& all = result.tasks[static_cast<std::size_t>(rank)];
    std::vector<std::size_t> claims(all.size());
    std::iota(claims.begin(), claims.end(), 0);
    std::erase_if(claims, [&](std::size_t claim) { return all[claim].task.kind == TaskKind::dispatch; });
    std::ranges::sort(claims, {},
                      [&](std::size_t claim) { return std::pair(all[claim].worker, all[claim].begin.value); });
    int worker = -1;
    Cycles now{0};
    for (const auto claim : claims) {
      const GpuTask& task = all[claim];
      if (std::exchange(worker, task.worker) != task.worker) now = {0};
      const auto until = [&](SpanKind kind, Cycles end) {
        if (end <= now) return;
        timeline.spans.push_back(
            {rank, worker, kind, task.task, static_cast<std::int64_t>(claim), nanos(now), nanos(end)});
        now = end;
      };
      until(SpanKind::dependency, task.begin);
      until(SpanKind::operand_stall, task.begin + task.waited);
      until(SpanKind::compute, task.end - task.stalled);
      until(SpanKind::sender_stall, task.end);
    }
  }
  return timeline;
}

double product_flops(const Inputs& inputs) {
  const auto& shape = inputs.shape;
  double rows = 0;
  for (std::int64_t token = 0; token < inputs.num_tokens(); ++token) {
    for (int slot = 0; slot < shape.num_slots(); ++slot) rows += inputs.expert_at(token, slot) >= 0 ? 1 : 0;
  }
  return 6 * rows * static_cast<double>(shape.hidden) * static_cast<double>(shape.intermediate);
}

void require_gpu_shape(const MoeShape& shape) {
  constexpr int kUnit = 8;  // bf16 elements of 16 bytes, which loads and stores move at once
  require(shape.hidden % kUnit == 0 && shape.intermediate % kUnit == 0,
          "hidden {} and intermediate {}: the GPU's kernel needs multiples of {}; pad the weights with zeros",
          shape.hidden, shape.intermediate, kUnit);
}

}  // namespace xs::moe
