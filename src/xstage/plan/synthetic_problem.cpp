#include "xstage/plan/synthetic_problem.hpp"

namespace xs {

SyntheticProblem::SyntheticProblem(const SyntheticShape& shape) : shape_(shape), group_blocks_{0, shape.num_blocks} {}

Counts SyntheticProblem::counts() const {
  Counts counts;
  counts.num_ranks = 2;
  counts.num_groups = 1;
  counts.linear1_tiles = static_cast<std::int32_t>(ceil_div<std::int64_t>(2 * shape_.intermediate, shape_.tile_cols));
  counts.linear2_tiles = static_cast<std::int32_t>(ceil_div<std::int64_t>(shape_.hidden, shape_.tile_cols));
  counts.group_blocks = group_blocks_.data();
  counts.group_starts = &start_;
  return counts;
}

Schedule SyntheticProblem::schedule(const Order& order) const {
  const Counts own = counts();
  Schedule schedule;
  schedule.flags = {{"activated", 0, shape_.num_blocks}, {"combined", shape_.num_blocks, 1}};
  schedule.ranks.resize(2);
  RankSchedule& rank = schedule.ranks[0];
  rank.grids = {{TaskKind::linear1, shape_.num_blocks, own.linear1_tiles},
                {TaskKind::linear2, shape_.num_blocks, own.linear2_tiles}};
  rank.tasks = expand(order, own);
  const double tile = 2.0 * shape_.block_rows * shape_.tile_cols;
  for (const Task& task : rank.tasks) {
    if (task.kind == TaskKind::linear1) {
      rank.work.push_back({tile * static_cast<double>(shape_.hidden), 0});
      rank.raises.append({0, task.block, 1});
      if (shape_.linear1_bytes > 0) rank.sends.append({0, shape_.linear1_bytes});
    } else {
      rank.work.push_back({tile * static_cast<double>(shape_.intermediate), 0});
      rank.waits.append({task.block, own.linear1_tiles});
      rank.sends.append({shape_.remote ? 1 : 0, shape_.linear2_bytes});
      rank.raises.append({1, shape_.num_blocks, 1});
    }
    rank.end_rows();
  }
  return schedule;
}

}  // namespace xs
