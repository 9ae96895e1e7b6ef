#include "xstage/plan/grid_problem.hpp"

#include <gtest/gtest.h>

#include <map>

#include "xstage/core/test_support.hpp"
#include "xstage/plan/check.hpp"
#include "xstage/plan/random_problem.hpp"

namespace xs {
namespace {

using Segments = std::vector<GridSegment>;

template <class T>
std::vector<T> list(std::span<const T> values) {
  return {values.begin(), values.end()};
}

TEST(GridProblem, SegmentsPartitionTheRowsOfEveryTile) {
  for_random_grids([](const RandomGrid& random) {
    const auto& problem = random.problem;
    std::vector<std::int64_t> rows_of(random.shape.rows.size());
    std::int64_t row = 0;
    for (std::int32_t tile = 0; tile < problem.counts(0).row_tiles; ++tile) {
      for (const auto& segment : problem.segments(tile)) {
        EXPECT_EQ(std::int64_t{tile} * random.tiling.rows + segment.first, row);
        EXPECT_GE(row, problem.row_begin(segment.owner));
        row += segment.count;
        EXPECT_LE(row, problem.row_begin(segment.owner + 1));
        rows_of[static_cast<std::size_t>(segment.owner)] += segment.count;
      }
    }
    EXPECT_EQ(rows_of, random.shape.rows);
  });
}

TEST(GridProblem, TheCheckerAcceptsEveryRotation) {
  for_random_grids([](const RandomGrid& random) {
    for (const auto rotation : kRotations) {
      const auto faults = check(random.problem.schedule(rotation));
      ASSERT_TRUE(faults.empty()) << faults.front().text;
    }
  });
}

// Every element is stored once, with its owner or at home; every shard goes to every peer.
TEST(GridProblem, SendsAreTheElementsAndTheShards) {
  for_random_grids([](const RandomGrid& random) {
    const auto schedule = random.problem.schedule(Rotation::own_last);
    const bool scatter = random.problem.form() == GridForm::scatter;
    const int ranks = random.problem.num_ranks();
    for (int rank = 0; rank < ranks; ++rank) {
      const auto& own = schedule.ranks[static_cast<std::size_t>(rank)];
      std::map<int, std::int64_t> stored, pushed;
      for (std::size_t claim = 0; claim < own.tasks.size(); ++claim) {
        auto& sent = own.tasks[claim].kind == TaskKind::dispatch ? pushed : stored;
        for (const auto& send : own.sends[claim]) sent[send.rank] += send.bytes;
      }
      const auto rows = [&](int owner) { return random.shape.rows[static_cast<std::size_t>(owner)]; };
      const auto cols = random.shape.cols[static_cast<std::size_t>(rank)];
      for (int peer = 0; peer < ranks; ++peer) {
        const auto kept = scatter ? rows(peer) : peer == rank ? random.problem.num_rows() : 0;
        EXPECT_EQ(stored[peer], kept * cols * 2);
        EXPECT_EQ(pushed[peer], scatter || peer == rank ? 0 : rows(rank) * 64);
      }
    }
  });
}

// Rank 0 owns 5 rows, rank 1 owns 3; tiles of 4 rows and 2 columns; rank 0 has 3 columns, rank 1 has 2.
struct ByHand {
  explicit ByHand(GridForm form)
      : problem(form, {{5, 3}, {3, 2}}, {4, 2, 4}, {{100, 10}, 2, 16, 4}),
        schedule(problem.schedule(Rotation::natural)) {}
  const RankSchedule& rank(std::size_t index) const { return schedule.ranks[index]; }

  GridProblem problem;
  Schedule schedule;
};

TEST(GridProblem, ScatterByHand) {
  const ByHand hand(GridForm::scatter);
  EXPECT_EQ(hand.problem.segments(1), (Segments{{0, 0, 1}, {1, 1, 3}}));
  // Rank 0: tiles (0,0) (0,1) (1,0) (1,1), then its five rows in two closing tasks.
  const auto& rank0 = hand.rank(0);
  ASSERT_EQ(rank0.tasks.size(), 6u);
  EXPECT_EQ(rank0.tasks[3], (Task{TaskKind::tile, 1, 1}));
  EXPECT_EQ(rank0.work[3].flops, 100);  // a full tile, although one column is left
  EXPECT_EQ(list(rank0.raises[3]), (std::vector<Raise>{{0, 0, 1}, {1, 0, 1}}));
  ASSERT_EQ(rank0.sends[3].size(), 2u);
  EXPECT_EQ(rank0.sends[3][0].bytes, 1 * 1 * 2);
  EXPECT_EQ(rank0.sends[3][1].bytes, 3 * 1 * 2);
  EXPECT_TRUE(rank0.waits[3].empty());
  // Both row tiles have rows of rank 0: 2 x 2 of its own, 2 x 1 of rank 1.
  EXPECT_EQ(list(rank0.waits[4]), (std::vector<Wait>{{0, 4}, {1, 2}}));
  EXPECT_EQ(rank0.work[4].load_bytes, 4 * (3 + 2) * 4);
  EXPECT_EQ(rank0.work[5].load_bytes, 1 * (3 + 2) * 4);
  // One row tile has rows of rank 1.
  EXPECT_EQ(list(hand.rank(1).waits[2]), (std::vector<Wait>{{0, 2}, {1, 1}}));
}

TEST(GridProblem, GatherByHand) {
  const ByHand hand(GridForm::gather);
  const auto& rank0 = hand.rank(0);
  ASSERT_EQ(rank0.tasks.size(), 5u);
  EXPECT_EQ(rank0.tasks[0], (Task{TaskKind::dispatch, 0, 0}));
  EXPECT_EQ(rank0.work[0].load_bytes, 5 * 16);
  ASSERT_EQ(rank0.sends[0].size(), 1u);
  EXPECT_EQ(rank0.sends[0][0].bytes, 5 * 16);
  EXPECT_EQ(list(rank0.raises[0]), (std::vector<Raise>{{1, 0, 1}}));
  // The first row tile is its own; the second needs rank 1's shard.
  EXPECT_TRUE(rank0.waits[1].empty());
  EXPECT_EQ(list(rank0.waits[3]), (std::vector<Wait>{{1, 1}}));
  EXPECT_EQ(rank0.sends[3][0].rank, 0);
  // Rank 1 needs rank 0's shard for both.
  const auto& rank1 = hand.rank(1);
  EXPECT_EQ(list(rank1.waits[1]), (std::vector<Wait>{{0, 1}}));
  EXPECT_EQ(list(rank1.waits[2]), (std::vector<Wait>{{0, 1}}));
}

TEST(GridProblem, ShardsWithoutBytesStillArrive) {
  const GridProblem problem(GridForm::gather, {{4, 4}, {4, 4}}, {4, 4, 4}, {});
  EXPECT_TRUE(check(problem.schedule(Rotation::own_first)).empty());
}

TEST(GridProblem, ImpossibleArgumentsAreUsageErrors) {
  const auto refuses = [](const GridShape& shape, const GridTiling& tiling, const std::string& why) {
    expect_usage_error([&] { GridProblem(GridForm::scatter, shape, tiling, {}); }, {"grid: ", why});
  };
  refuses({{}, {}}, {}, "at least one rank expected, found 0 and 0");
  refuses({{1, 2}, {1}}, {}, "found 2 and 1");
  refuses({{-1}, {1}}, {}, "0 to 2147483647");
  refuses({{1}, {1LL << 31}}, {}, "0 to 2147483647");
  refuses({{2147483647, 1}, {1, 1}}, {}, "2147483648 rows are more than 32 bits count");
  refuses({{1}, {1}}, {0, 1, 1}, "every tile extent");
  refuses({{1}, {1}}, {1, 0, 1}, "every tile extent");
  refuses({{1}, {1}}, {1, 1, 0}, "every tile extent");
}

// A file may name any kind of task; a layer has no grid for this one.
TEST(GridProblem, ATileInAMoeScheduleIsAFault) {
  const auto problem = random_problem(1).problem;
  std::vector<std::vector<Task>> tasks;
  for (int rank = 0; rank < problem.num_ranks(); ++rank) tasks.push_back(expand(Order{}, problem.counts(rank)));
  tasks[0].push_back({TaskKind::tile, 0, 0});
  const auto faults = check(problem.schedule(tasks));
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].kind, FaultKind::tile_unknown) << faults[0].text;
}

}  // namespace
}  // namespace xs
