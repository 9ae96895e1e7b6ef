#include <gtest/gtest.h>

#include <map>

#include "xstage/plan/check.hpp"
#include "xstage/plan/loose_schedule.hpp"

// What the checker says about deadlock against an execution that does one random step after the other.

namespace xs {
namespace {

// Workers that take, start and finish tasks in any interleaving; raises arrive at peers any time later.
class RandomExecution {
 public:
  RandomExecution(const Schedule& schedule, int workers, Claim claim, std::uint64_t seed)
      : schedule_(schedule), claim_(claim), dice_(seed), ranks_(schedule.ranks.size()) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (int worker = 0; worker < workers; ++worker)
        ranks_[rank].next_static.push_back(static_cast<std::size_t>(worker));
      ranks_[rank].holds.resize(static_cast<std::size_t>(workers), kNone);
    }
  }

  // Whether every task was done when nobody could move any more.
  bool finishes() {
    for (auto found = moves(); !found.empty(); found = moves()) {
      const auto [rank, worker] = found[pick(dice_, found.size())];
      if (rank == kNone) {
        deliver(worker);
      } else if (ranks_[rank].holds[worker] == kNone) {
        take(rank, worker);
      } else {
        execute(rank, worker);
      }
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].done != schedule_.ranks[rank].tasks.size()) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct RankState {
    std::vector<std::size_t> next_static;  // [worker]
    std::vector<std::size_t> holds;        // [worker] claim
    std::size_t next_claim = 0;
    std::size_t done = 0;
  };

  std::size_t& next(std::size_t rank, std::size_t worker) {
    return claim_ == Claim::fixed ? ranks_[rank].next_static[worker] : ranks_[rank].next_claim;
  }

  bool ready(std::size_t rank, std::size_t claim) {
    return std::ranges::all_of(schedule_.ranks[rank].waits[claim], [&](const Wait& wait) {
      return flags_[{rank, wait.flag}] >= wait.count;
    });
  }

  // (rank, worker) that can take or execute a task; (kNone, i) for a raise on its way.
  std::vector<std::pair<std::size_t, std::size_t>> moves() {
    std::vector<std::pair<std::size_t, std::size_t>> found;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (std::size_t worker = 0; worker < ranks_[rank].holds.size(); ++worker) {
        const auto held = ranks_[rank].holds[worker];
        const bool can = held == kNone ? next(rank, worker) < schedule_.ranks[rank].tasks.size() : ready(rank, held);
        if (can) found.emplace_back(rank, worker);
      }
    }
    for (std::size_t i = 0; i < on_their_way_.size(); ++i) found.emplace_back(kNone, i);
    return found;
  }

  void take(std::size_t rank, std::size_t worker) {
    auto& claim = next(rank, worker);
    ranks_[rank].holds[worker] = claim;
    claim += claim_ == Claim::fixed ? ranks_[rank].holds.size() : 1;
  }

  void execute(std::size_t rank, std::size_t worker) {
    const auto raises = schedule_.ranks[rank].raises[ranks_[rank].holds[worker]];
    on_their_way_.insert(on_their_way_.end(), raises.begin(), raises.end());
    ranks_[rank].holds[worker] = kNone;
    ++ranks_[rank].done;
  }

  void deliver(std::size_t index) {
    const Raise raise = on_their_way_[index];
    on_their_way_.erase(on_their_way_.begin() + static_cast<std::ptrdiff_t>(index));
    flags_[{static_cast<std::size_t>(raise.rank), raise.flag}] += raise.add;
  }

  const Schedule& schedule_;
  Claim claim_;
  Dice dice_;
  std::vector<RankState> ranks_;
  std::map<std::pair<std::size_t, std::int32_t>, std::int64_t> flags_;
  std::vector<Raise> on_their_way_;
};

constexpr std::uint64_t kNumSchedules = 2000;

// Calls body(seed, schedule) for the random schedules that the checker accepts or rejects; returns how many.
template <class Body>
int for_schedules(bool accepted, Body&& body) {
  int count = 0;
  for (std::uint64_t seed = 0; seed < kNumSchedules; ++seed) {
    const auto schedule = random_waits(seed);
    const auto faults = check(schedule);
    for (const auto& fault : faults)
      EXPECT_EQ(fault.kind, FaultKind::deadlock) << "seed " << seed << ": " << fault.text;
    if (faults.empty() != accepted) continue;
    ++count;
    body(seed, schedule);
  }
  return count;
}

TEST(Deadlock, AcceptedSchedulesFinishWithAnyWorkersClaimsAndInterleaving) {
  const int accepted = for_schedules(true, [](std::uint64_t seed, const Schedule& schedule) {
    for (int workers = 1; workers <= 3; ++workers) {
      for (const auto claim : {Claim::fixed, Claim::counter}) {
        for (std::uint64_t run = 0; run < 3; ++run) {
          ASSERT_TRUE(RandomExecution(schedule, workers, claim, mix64(seed) + run).finishes())
              << "seed " << seed << ", run " << run << ", " << workers << " workers";
        }
      }
    }
  });
  EXPECT_GT(accepted, 200);
}

TEST(Deadlock, RejectedSchedulesGetStuckWithOneWorker) {
  const int rejected = for_schedules(false, [](std::uint64_t seed, const Schedule& schedule) {
    for (const auto claim : {Claim::fixed, Claim::counter}) {
      for (std::uint64_t run = 0; run < 3; ++run) {
        ASSERT_FALSE(RandomExecution(schedule, 1, claim, mix64(seed) + run).finishes()) << "seed " << seed;
      }
    }
  });
  EXPECT_GT(rejected, 200);
}

TEST(Deadlock, MoeSchedulesFinishWithAnyWorkersClaimsAndInterleaving) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto problem = make_problem({32, 16, 4, 2}, {4, 8, 16, 4}, 3, make_routing("zipf", 12, 4, 2, seed));
    const auto order = random_order(seed);
    const auto schedule = with_random_ring(problem, order, seed).schedule(order);
    for (int workers = 1; workers <= 3; ++workers) {
      for (const auto claim : {Claim::fixed, Claim::counter}) {
        EXPECT_TRUE(RandomExecution(schedule, workers, claim, seed).finishes()) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace xs
