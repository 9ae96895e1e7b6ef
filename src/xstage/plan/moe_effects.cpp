#include <algorithm>
#include <utility>

#include "xstage/core/error.hpp"
#include "xstage/plan/moe_problem.hpp"
#include "xstage/plan/ring.hpp"

namespace xs {
namespace {

enum MoeRegion : std::uint8_t { kRows, kActivations, kSlots };  // in the order of MoeProblem::regions()

}  // namespace

ActivationUses activation_uses(std::span<const Task> tasks, std::int32_t num_blocks) {
  ActivationUses uses{{}, std::vector<std::int32_t>(static_cast<std::size_t>(num_blocks), -1)};
  const auto take_slot = [&](std::int32_t block) {
    auto& use = uses.use[static_cast<std::size_t>(block)];
    if (use >= 0) return;
    use = static_cast<std::int32_t>(uses.block.size());
    uses.block.push_back(block);
  };
  for (const Task& task : tasks) {
    if (task.kind == TaskKind::linear1 && task.block >= 0 && task.block < num_blocks) take_slot(task.block);
  }
  for (std::int32_t block = 0; block < num_blocks; ++block) take_slot(block);
  return uses;
}

std::int32_t ring_bound(std::span<const Task> tasks, std::int32_t num_blocks) {
  const auto order = activation_uses(tasks, num_blocks);
  std::vector<RingUse> uses(order.block.size(), {static_cast<std::int64_t>(tasks.size()), 0});
  for (std::size_t claim = 0; claim < tasks.size(); ++claim) {
    const Task& task = tasks[claim];
    const bool touches = task.kind == TaskKind::linear1 || task.kind == TaskKind::linear2;
    if (!touches || task.block < 0 || task.block >= num_blocks) continue;
    auto& use = uses[static_cast<std::size_t>(order.use[static_cast<std::size_t>(task.block)])];
    use.first = std::min(use.first, static_cast<std::int64_t>(claim));
    use.last = static_cast<std::int64_t>(claim);
  }
  return ring_bound(uses);
}

RankSchedule MoeProblem::rank_schedule(int rank, std::vector<Task> tasks, const MoeBytes& bytes) const {
  const Counts own = counts(rank);
  const auto uses = activation_uses(tasks, own.num_blocks());
  RankSchedule schedule;
  schedule.grids = {{TaskKind::dispatch, own.num_experts, own.dispatch_parts},
                    {TaskKind::linear1, own.num_blocks(), own.linear1_tiles},
                    {TaskKind::linear2, own.num_blocks(), own.linear2_tiles},
                    {TaskKind::reduce, own.num_reduce, 1},
                    {TaskKind::tile, 0, 0}};
  schedule.work.reserve(tasks.size());
  for (const Task& task : tasks) {
    const TileGrid& grid = schedule.grids[static_cast<std::size_t>(task.kind)];
    // A task outside its grid has no effects; the checker names it.
    const bool inside = task.block >= 0 && task.block < grid.num_blocks && task.tile >= 0 && task.tile < grid.num_tiles;
    if (inside) {
      append_effects(rank, task, uses, bytes, schedule);
    } else {
      schedule.work.push_back({0, 0});
    }
    schedule.end_rows();
  }
  schedule.tasks = std::move(tasks);
  return schedule;
}

// The one place that knows what an MoE task waits for, reads, writes, sends and publishes.
void MoeProblem::append_effects(int rank, const Task& task, const ActivationUses& uses, const MoeBytes& bytes,
                                RankSchedule& out) const {
  const Counts own = counts(rank);
  const double hidden = static_cast<double>(shape_.hidden);
  const double intermediate = static_cast<double>(shape_.intermediate);
  const auto weight_share = [&](const MoeBlock& of, double elements) {
    // Row blocks of one expert run close together, so its weights come from memory once.
    const auto group = group_of(rank, of.expert);
    return elements * bytes.weight / (own.group_blocks[group + 1] - own.group_blocks[group]);
  };
  // Columns of a tile that are not padding.
  const auto valid_cols = [&](int tile_cols, std::int64_t num_cols) {
    return static_cast<double>(std::min<std::int64_t>(tile_cols, num_cols - std::int64_t{task.tile} * tile_cols));
  };
  const auto reads = [&](MoeRegion region, std::int32_t slot, std::int32_t generation = 0) {
    out.accesses.append({rank, slot, generation, region, AccessMode::read});
  };
  const auto writes = [&](int to, MoeRegion region, std::int32_t slot, std::int32_t generation = 0) {
    out.accesses.append({to, slot, generation, region, AccessMode::write});
  };
  const auto slots = activation_slots();
  switch (task.kind) {
    case TaskKind::dispatch: {
      const std::int32_t expert = task.block;
      const auto [part, count] = part_of_rows(rank, task);
      const int to = holder(expert, rank);
      out.work.push_back({0, count * hidden * bytes.dispatch});
      if (count == 0) return;
      out.sends.append({to, static_cast<std::int64_t>(count * hidden * bytes.dispatch)});
      // The rows may straddle row blocks of the expert.
      const std::int32_t begin = row_offset(rank, expert) + part;
      for (std::int32_t row = begin; row < begin + count;) {
        const std::int32_t in_expert = row / tiling_.block_rows;
        const std::int32_t end = row + std::min(begin + count - row, tiling_.block_rows - row % tiling_.block_rows);
        writes(to, kRows, first_block(to, expert) + in_expert);
        out.raises.append({to, arrived(first_block(to, expert) + in_expert), end - row});
        row = end;
      }
      return;
    }
    case TaskKind::linear1: {
      const MoeBlock& of = block(rank, task.block);
      const double valid = valid_cols(tiling_.linear1_cols, shape_.intermediate);
      out.work.push_back(
          {2.0 * tiling_.block_rows * hidden * 2.0 * tiling_.linear1_cols, weight_share(of, hidden * 2.0 * valid)});
      const auto use = uses.use[index(task.block)];
      out.waits.append({arrived(task.block), of.num_rows});
      if (use >= slots) out.waits.append({released(uses.block[index(use - slots)]), own.linear2_tiles});
      reads(kRows, task.block);
      writes(rank, kActivations, use % slots, use / slots);
      out.raises.append({rank, activated(task.block), 1});
      return;
    }
    case TaskKind::linear2: {
      const MoeBlock& of = block(rank, task.block);
      const double valid = valid_cols(tiling_.linear2_cols, shape_.hidden);
      out.work.push_back(
          {2.0 * tiling_.block_rows * intermediate * tiling_.linear2_cols, weight_share(of, intermediate * valid)});
      const auto use = uses.use[index(task.block)];
      out.waits.append({activated(task.block), own.linear1_tiles});
      reads(kActivations, use % slots, use / slots);
      reads(kRows, task.block);  // where they came from
      if (use + slots < own.num_blocks()) out.raises.append({rank, released(task.block), 1});
      for (const auto& segment : segments(of)) {
        out.sends.append({segment.source, static_cast<std::int64_t>(segment.count * valid * bytes.combine)});
        writes(segment.source, kSlots, rank);
        out.raises.append({segment.source, combined(rank), 1});
      }
      return;
    }
    case TaskKind::reduce: {
      const std::int64_t first = std::int64_t{task.block} * tiling_.reduce_tokens;
      const auto tokens = std::min<std::int64_t>(tiling_.reduce_tokens, tokens_of(rank) - first);
      const double elements = static_cast<double>(tokens) * shape_.num_slots() * hidden;
      out.work.push_back({0, elements * bytes.combine});
      for (int peer = 0; peer < num_ranks(); ++peer) {
        const std::int64_t tiles =
            std::int64_t{owned_blocks_[index(peer) * index(num_ranks()) + index(rank)]} * own.linear2_tiles;
        if (tiles == 0) continue;
        out.waits.append({combined(peer), tiles});
        reads(kSlots, peer);
      }
      return;
    }
    case TaskKind::tile:
      return;  // a layer has none
  }
}

Schedule MoeProblem::schedule(const Order& order, const MoeBytes& bytes) const {
  Schedule schedule{flags(), regions(), {}};
  for (int rank = 0; rank < num_ranks(); ++rank) {
    schedule.ranks.push_back(rank_schedule(rank, expand(order, counts(rank)), bytes));
  }
  return schedule;
}

Schedule MoeProblem::schedule(const std::vector<std::vector<Task>>& tasks, const MoeBytes& bytes) const {
  require(tasks.size() == index(num_ranks()), "schedule: {} ranks expected, {} found", num_ranks(), tasks.size());
  Schedule schedule{flags(), regions(), {}};
  for (int rank = 0; rank < num_ranks(); ++rank) {
    schedule.ranks.push_back(rank_schedule(rank, tasks[index(rank)], bytes));
  }
  return schedule;
}

}  // namespace xs
