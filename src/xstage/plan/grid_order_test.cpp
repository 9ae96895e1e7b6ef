#include "xstage/plan/grid_order.hpp"

#include <gtest/gtest.h>

#include <set>

#include "xstage/core/test_support.hpp"
#include "xstage/plan/random_problem.hpp"

namespace xs {
namespace {

// Calls body(problem, rank, counts) for every rank of every random grid.
template <class Body>
void for_grid_ranks(Body&& body) {
  for_random_grids([&](const RandomGrid& random) {
    for (int rank = 0; rank < random.problem.num_ranks(); ++rank) {
      SCOPED_TRACE(fmt::format("rank {}", rank));
      body(random.problem, rank, random.problem.counts(rank));
      if (testing::Test::HasFailure()) return;
    }
  });
}

// Row tiles in the order of the visit.
std::vector<std::int32_t> visit(Rotation rotation, const GridCounts& counts) {
  std::vector<std::int32_t> tiles;
  for (std::int32_t position = 0; position < counts.row_tiles; ++position) {
    tiles.push_back(rotated(rotation, counts.starts, position, counts.row_tiles));
  }
  return tiles;
}

// Three owners of 5, 3 and 4 rows in tiles of 4: tile 0 is rank 0's, tile 1 has one row of rank 0 and those of rank 1,
// tile 2 is rank 2's.
TEST(GridOrder, VisitsOfThreeRanksWithAStraddlingTile) {
  const GridProblem problem(GridForm::scatter, {{5, 3, 4}, {1, 1, 1}}, {4, 1, 1}, {});
  using Visit = std::vector<std::int32_t>;
  EXPECT_EQ(visit(Rotation::natural, problem.counts(1)), (Visit{0, 1, 2}));
  EXPECT_EQ(visit(Rotation::own_last, problem.counts(0)), (Visit{1, 2, 0}));
  EXPECT_EQ(visit(Rotation::own_last, problem.counts(1)), (Visit{2, 0, 1}));
  EXPECT_EQ(visit(Rotation::own_last, problem.counts(2)), (Visit{0, 1, 2}));
  EXPECT_EQ(visit(Rotation::own_first, problem.counts(0)), (Visit{0, 1, 2}));
  EXPECT_EQ(visit(Rotation::own_first, problem.counts(1)), (Visit{2, 0, 1}));  // the shared tile waits for rank 0
  EXPECT_EQ(visit(Rotation::own_first, problem.counts(2)), (Visit{2, 0, 1}));
}

constexpr GridCounts kGather{1, 3, 2, 3, 2, 0, {2, 1}};
static_assert(kGather.num_tasks() == 2 + 3 * 2);
static_assert(task_at(Rotation::own_first, kGather, 0) == Task{TaskKind::dispatch, 0, 0});
static_assert(task_at(Rotation::own_first, kGather, 2) == Task{TaskKind::tile, 1, 0});
static_assert(task_at(Rotation::own_first, kGather, 3) == Task{TaskKind::tile, 1, 1});
static_assert(task_at(Rotation::own_first, kGather, 7) == Task{TaskKind::tile, 0, 1});
static_assert(task_at(Rotation::own_last, kGather, 2) == Task{TaskKind::tile, 2, 0});
static_assert(shard_peer(kGather, 0) == 0 && shard_peer(kGather, 1) == 2);

TEST(GridOrder, FrameIsDispatchThenTilesThenReduce) {
  for_grid_ranks([](const GridProblem&, int, const GridCounts& counts) {
    for (const auto rotation : kRotations) {
      const auto tasks = expand(rotation, counts);
      const auto stage = [](const Task& task) {
        return task.kind == TaskKind::dispatch ? 0 : task.kind == TaskKind::reduce ? 2 : 1;
      };
      EXPECT_TRUE(std::ranges::is_sorted(tasks, {}, stage));
      EXPECT_EQ(std::ranges::count(tasks, TaskKind::tile, &Task::kind), counts.num_tiles());
    }
  });
}

TEST(GridOrder, TilesOfARowFollowEachOtherInTheOrderOfTheVisit) {
  for_grid_ranks([](const GridProblem&, int, const GridCounts& counts) {
    for (const auto rotation : kRotations) {
      std::vector<Task> expected;
      for (const auto row : visit(rotation, counts)) {
        for (int col = 0; col < counts.col_tiles; ++col) expected.push_back({TaskKind::tile, row, col});
      }
      auto tasks = expand(rotation, counts);
      std::erase_if(tasks, [](const Task& task) { return task.kind != TaskKind::tile; });
      EXPECT_EQ(tasks, expected);
    }
  });
}

// The tail of a scatter sends nothing, and every rank goes round the ring from the next one on.
TEST(GridOrder, OwnLastEndsWithTilesOfOwnRowsOnly) {
  for_grid_ranks([](const GridProblem& problem, int rank, const GridCounts& counts) {
    const int ranks = problem.num_ranks();
    int distance = 0;
    bool own_only = false;
    for (const auto row : visit(Rotation::own_last, counts)) {
      const auto segments = problem.segments(row);
      const bool now = segments.size() == 1 && segments[0].owner == rank;
      EXPECT_TRUE(now || !own_only) << "row tile " << row;
      own_only = now;
      EXPECT_GE((segments.back().owner - rank - 1 + ranks) % ranks, distance) << "row tile " << row;
      distance = (segments.back().owner - rank - 1 + ranks) % ranks;
    }
  });
}

// A gather begins with what needs no peer, and needs shards in the order in which they are sent.
TEST(GridOrder, OwnFirstNeedsShardsInTheOrderOfTheirArrival) {
  for_grid_ranks([](const GridProblem& problem, int rank, const GridCounts& counts) {
    const int ranks = problem.num_ranks();
    int needed = 0;
    for (const auto row : visit(Rotation::own_first, counts)) {
      int last_step = 0;
      for (const auto& segment : problem.segments(row)) {
        last_step = std::max(last_step, (segment.owner - rank + ranks) % ranks);
      }
      EXPECT_GE(last_step, needed) << "row tile " << row;
      needed = last_step;
    }
    GridCounts source = counts;
    for (int step = 0; step < ranks - 1; ++step) {
      source.rank = (rank + 1 + step) % ranks;
      EXPECT_EQ(shard_peer(source, step), rank) << "the shard that this rank needs next is sent to another rank";
    }
  });
}

TEST(GridOrder, RotationsAreWholeVisits) {
  for_grid_ranks([](const GridProblem&, int, const GridCounts& counts) {
    for (const auto rotation : kRotations) {
      const auto tiles = visit(rotation, counts);
      EXPECT_EQ(std::set(tiles.begin(), tiles.end()).size(), tiles.size());
      for (const auto tile : tiles) EXPECT_TRUE(tile >= 0 && tile < counts.row_tiles);
    }
  });
}

}  // namespace
}  // namespace xs
