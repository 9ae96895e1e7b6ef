#include <gtest/gtest.h>

#include "xstage/core/test_support.hpp"
#include "xstage/plan/random_problem.hpp"
#include "xstage/sim/simulate.hpp"

// Grids of tiles in virtual time: that they finish, and what their order is worth.

namespace xs {
namespace {

// simulate() itself fails if a task is left over.
TEST(SimulateGrid, EveryRotationFinishesUnderBothClaims) {
  for_random_grids([](const RandomGrid& random) {
    PortParams port;
    port.burst_overhead = {50};
    port.free_issue = {16};
    port.drain = {30};
    port.capacity = {2000};
    port.visible_latency = {200};
    const SimMachine machine{{1.75}, {512}, {40}, port};
    for (const auto rotation : kRotations) {
      const auto schedule = random.problem.schedule(rotation);
      for (const auto claim : {Claim::fixed, Claim::counter}) {
        for (const int workers : {1, 3}) {
          EXPECT_NO_THROW(simulate(schedule, machine, {workers, claim, false}));
        }
      }
    }
  });
}

// Two ranks of 200 rows and 100 columns, one worker each, four tiles of 1,000 ns whose stores issue at once. A tile
// drains in 400 ns, a shard in 1,200.
Nanos time_of_two_ranks(GridForm form, Rotation rotation) {
  constexpr double kTileBytes = 100 * 100 * 2, kShardBytes = 200 * 4;
  const GridProblem problem(form, {{200, 200}, {100, 100}}, {100, 100, 200}, {{1000, 0}, 2, 4, 0});
  PortParams port;
  port.free_issue = {1e12};
  port.drain = {form == GridForm::scatter ? kTileBytes / 400 : kShardBytes / 1200};
  port.capacity = {1e12};
  return simulate(problem.schedule(rotation), {{1}, {1}, {1e30}, port}, {1, Claim::fixed, false}).makespan;
}

TEST(SimulateGrid, AScatterWithOwnRowsLastHasNoTail) {
  // The last remote tile drains while the own ones compute, or after everything.
  EXPECT_NEAR(time_of_two_ranks(GridForm::scatter, Rotation::own_last).value, 4000, 1);
  EXPECT_NEAR(time_of_two_ranks(GridForm::scatter, Rotation::own_first).value, 4400, 1);
  // In the natural order rank 0 has its own rows first.
  EXPECT_NEAR(time_of_two_ranks(GridForm::scatter, Rotation::natural).value, 4400, 1);
}

TEST(SimulateGrid, AGatherWithOwnRowsFirstHasNoHead) {
  // Two own tiles hide the shard's way, unless the peer's rows come first.
  EXPECT_NEAR(time_of_two_ranks(GridForm::gather, Rotation::own_first).value, 4000, 1);
  EXPECT_NEAR(time_of_two_ranks(GridForm::gather, Rotation::own_last).value, 5200, 1);
}

}  // namespace
}  // namespace xs
