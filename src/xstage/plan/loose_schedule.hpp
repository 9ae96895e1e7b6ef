#pragma once

#include <vector>

#include "xstage/plan/random_problem.hpp"
#include "xstage/plan/schedule.hpp"

// For tests of plan and sim: a schedule in parts that can be written by hand, changed and put together again.

namespace xs {

struct LooseTask {
  Task task{TaskKind::dispatch, 0, 0};
  Work work{0, 0};
  std::vector<Wait> waits = {};
  std::vector<Raise> raises = {};
  std::vector<Send> sends = {};
  std::vector<Access> accesses = {};
};

struct LooseRank {
  std::vector<TileGrid> grids;
  std::vector<LooseTask> tasks;
};

struct LooseSchedule {
  std::vector<FlagGroup> flags;
  std::vector<Region> regions;
  std::vector<LooseRank> ranks;

  LooseTask& at(std::size_t rank, std::size_t claim) { return ranks[rank].tasks[claim]; }
};

inline LooseSchedule take_apart(const Schedule& schedule) {
  LooseSchedule loose{schedule.flags, schedule.regions, {}};
  for (const auto& rank : schedule.ranks) {
    LooseRank& own = loose.ranks.emplace_back(LooseRank{rank.grids, {}});
    for (std::size_t claim = 0; claim < rank.tasks.size(); ++claim) {
      const auto waits = rank.waits[claim];
      const auto raises = rank.raises[claim];
      const auto sends = rank.sends[claim];
      const auto accesses = rank.accesses[claim];
      own.tasks.push_back({rank.tasks[claim],
                           rank.work[claim],
                           {waits.begin(), waits.end()},
                           {raises.begin(), raises.end()},
                           {sends.begin(), sends.end()},
                           {accesses.begin(), accesses.end()}});
    }
  }
  return loose;
}

inline Schedule put_together(const LooseSchedule& loose) {
  Schedule schedule{loose.flags, loose.regions, {}};
  for (const auto& own : loose.ranks) {
    RankSchedule& rank = schedule.ranks.emplace_back();
    rank.grids = own.grids;
    for (const auto& task : own.tasks) {
      rank.tasks.push_back(task.task);
      rank.work.push_back(task.work);
      for (const auto& wait : task.waits) rank.waits.append(wait);
      for (const auto& raise : task.raises) rank.raises.append(raise);
      for (const auto& send : task.sends) rank.sends.append(send);
      for (const auto& access : task.accesses) rank.accesses.append(access);
      rank.end_rows();
    }
  }
  return schedule;
}

// The smallest ring_blocks that does for this order on every rank.
inline std::int32_t ring_bound(const MoeProblem& problem, const Order& order) {
  std::int32_t bound = 1;
  for (int rank = 0; rank < problem.num_ranks(); ++rank) {
    bound = std::max(bound, ring_bound(expand(order, problem.counts(rank)), problem.num_blocks(rank)));
  }
  return bound;
}

// The problem as it stands, with the smallest ring for this order, or with a larger one.
inline MoeProblem with_random_ring(const MoeProblem& problem, const Order& order, std::uint64_t seed) {
  Dice dice(seed);
  if (chance(dice, 0.3)) return problem;
  return problem.with_ring(ring_bound(problem, order) + (chance(dice, 0.5) ? 0 : dice.whole(1, 4)));
}

// Ranks that do nothing but the given tasks, which become dispatch(0, 0), dispatch(1, 0), … in claim order.
inline LooseSchedule by_hand(std::vector<std::vector<LooseTask>> ranks, std::int32_t num_flags,
                             std::vector<Region> regions = {}) {
  LooseSchedule loose{{{"flag", 0, num_flags}}, std::move(regions), {}};
  for (auto& tasks : ranks) {
    std::int32_t block = 0;
    for (auto& task : tasks) task.task = {TaskKind::dispatch, block++, 0};
    loose.ranks.push_back({{{TaskKind::dispatch, block, 1}}, std::move(tasks)});
  }
  return loose;
}

// Two or three ranks of up to five tasks that wait for each other at random. Whatever the checker looks at before it
// searches for a cycle is in order: every wait is for the sum of all raises, and no raise stands behind it on its rank.
inline Schedule random_waits(std::uint64_t seed) {
  Dice dice(seed);
  const auto num_ranks = 2 + pick(dice, 2);
  std::vector<std::vector<LooseTask>> ranks(num_ranks);
  for (auto& tasks : ranks) tasks.resize(1 + pick(dice, 5));
  const auto num_flags = dice.whole(1, 4);
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    for (std::int32_t flag = 0; flag < num_flags; ++flag) {
      const auto claim = pick(dice, ranks[rank].size());  // of the waiter
      std::int64_t total = 0;
      for (std::size_t from = 0; from < num_ranks; ++from) {
        const auto end = from == rank ? claim : ranks[from].size();
        for (std::size_t raiser = 0; raiser < end; ++raiser) {
          if (!chance(dice, 0.25)) continue;
          const auto add = dice.whole(1, 3);
          ranks[from][raiser].raises.push_back({static_cast<std::int32_t>(rank), flag, add});
          total += add;
        }
      }
      for (auto waiter = claim; waiter < ranks[rank].size(); ++waiter) {
        if (waiter == claim || chance(dice, 0.2)) ranks[rank][waiter].waits.push_back({flag, total});
      }
    }
  }
  return put_together(by_hand(std::move(ranks), num_flags));
}

// The tasks that can begin while `held` does not end, each with a worker of its own.
inline std::vector<TaskId> begin_without(const Schedule& schedule, TaskId held) {
  std::vector<std::vector<std::int64_t>> flags(schedule.ranks.size());
  for (auto& own : flags) own.resize(static_cast<std::size_t>(schedule.num_flags()));
  std::vector<TaskId> begun;
  for (std::size_t before = 1; before != begun.size();) {
    before = begun.size();
    for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      const auto& own = schedule.ranks[rank];
      for (std::size_t claim = 0; claim < own.tasks.size(); ++claim) {
        const TaskId task{static_cast<std::int32_t>(rank), static_cast<std::int32_t>(claim)};
        const bool ready = std::ranges::all_of(own.waits[claim], [&](const Wait& wait) {
          return flags[rank][static_cast<std::size_t>(wait.flag)] >= wait.count;
        });
        if (!ready || std::ranges::find(begun, task) != begun.end()) continue;
        begun.push_back(task);
        if (task == held) continue;
        for (const auto& raise : own.raises[claim]) {
          flags[static_cast<std::size_t>(raise.rank)][static_cast<std::size_t>(raise.flag)] += raise.add;
        }
      }
    }
  }
  return begun;
}

}  // namespace xs
