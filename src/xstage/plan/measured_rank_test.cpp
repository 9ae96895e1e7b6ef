#include "xstage/plan/measured_rank.hpp"

#include <gtest/gtest.h>

#include "xstage/plan/random_problem.hpp"

namespace xs {
namespace {

constexpr std::uint64_t kNumProblems = 200;
constexpr MoeBytes kBytes{1, 3, 4};

struct Traffic {
  std::int64_t to_peers = 0, to_itself = 0;
};
Traffic traffic(const Schedule& schedule, int rank) {
  Traffic traffic;
  const auto& mine = schedule.ranks[static_cast<std::size_t>(rank)];
  for (std::size_t claim = 0; claim < mine.tasks.size(); ++claim) {
    for (const auto& send : mine.sends[claim]) {
      (send.rank == rank ? traffic.to_itself : traffic.to_peers) += send.bytes;
    }
  }
  return traffic;
}

TEST(MeasuredRank, SendsWhatTheWholeLayerSendsAndItsControlsKeepItHome) {
  for (std::uint64_t seed = 0; seed < kNumProblems; ++seed) {
    const auto random = random_problem(seed);
    SCOPED_TRACE(random.what);
    const auto& problem = random.problem;
    const auto order = random_order(seed);
    const int rank = static_cast<int>(seed % static_cast<std::uint64_t>(problem.num_ranks()));
    const auto whole = traffic(problem.schedule(order, kBytes), rank);
    const auto owners = traffic(measured_rank(problem, rank, order, RowsTo::owners, kBytes), rank);
    EXPECT_EQ(owners.to_peers, whole.to_peers);
    EXPECT_EQ(owners.to_itself, whole.to_itself);
    EXPECT_EQ(bytes_to_peers(problem, rank, kBytes), static_cast<double>(whole.to_peers));
    const auto own = traffic(measured_rank(problem, rank, order, RowsTo::own, kBytes), rank);
    EXPECT_EQ(own.to_peers, 0);
    EXPECT_EQ(own.to_itself, whole.to_peers + whole.to_itself);
    const auto nowhere = traffic(measured_rank(problem, rank, order, RowsTo::nowhere, kBytes), rank);
    std::int64_t combined = 0;
    for (int owner = 0; owner < problem.num_ranks(); ++owner) {
      for (const auto expert : problem.local_experts(rank)) {
        if (problem.holder(expert, owner) == rank) combined += problem.rows_of(owner, expert);
      }
    }
    EXPECT_EQ(nowhere.to_peers, 0);
    EXPECT_EQ(own.to_itself - nowhere.to_itself,
              combined * problem.shape().hidden * static_cast<std::int64_t>(kBytes.combine));
  }
}

// Every wait is reached by what stands before it: nobody else is there.
TEST(MeasuredRank, NeedsNoPeer) {
  for (std::uint64_t seed = 0; seed < kNumProblems; ++seed) {
    const auto random = random_problem(seed);
    SCOPED_TRACE(random.what);
    const auto& problem = random.problem;
    const int rank = static_cast<int>(seed % static_cast<std::uint64_t>(problem.num_ranks()));
    const auto alone = measured_rank(problem, rank, random_order(seed), RowsTo::owners);
    std::vector<std::int64_t> reached(static_cast<std::size_t>(alone.num_flags()));
    for (int peer = 0; peer < problem.num_ranks(); ++peer) {
      const auto& tasks = alone.ranks[static_cast<std::size_t>(peer)];
      if (peer != rank) {
        EXPECT_TRUE(tasks.tasks.empty());
      }
      for (std::size_t claim = 0; claim < tasks.tasks.size(); ++claim) {
        for (const auto& wait : tasks.waits[claim]) {
          EXPECT_GE(reached[static_cast<std::size_t>(wait.flag)], wait.count);
        }
        for (const auto& raise : tasks.raises[claim]) {
          if (raise.rank == rank) reached[static_cast<std::size_t>(raise.flag)] += raise.add;
        }
      }
    }
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace xs
