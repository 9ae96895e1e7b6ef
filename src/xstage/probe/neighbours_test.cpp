#include "xstage/probe/neighbours.hpp"

#include "xstage/core/test_support.hpp"

namespace xs {
namespace {

// A link of 50 bytes per ns, 30 from one SM. Where more than 45 pass, loads get a tenth of what they would have.
NeighbourTarget narrow_link() {
  return {"a model", "st16", "host", 132, [](const NeighbourPattern& pattern) {
            const double wanted = pattern.pace.value > 0 ? pattern.pace.value : 1e3;
            const double store = std::min({30.0 * pattern.storers, 50.0, wanted});
            const double load = pattern.loaders * (pattern.from_cache ? 30.0 : 10.0);
            return NeighbourRates{{store}, {store > 45.5 ? load / 10 : load}};
          }};
}

TEST(Neighbours, TheTableTellsWhatStoringCostsAndWhatPacingGivesBack) {
  const auto table = probe_neighbours(narrow_link(), {});
  EXPECT_EQ(table.drain.value, 50);
  EXPECT_EQ(table.costs.size(), 4u * (1 + 4 + 4 * 4));
  for (const auto& cost : table.costs) {
    SCOPED_TRACE(fmt::format("{} storing, {} loading, pace {}", cost.pattern.storers, cost.pattern.loaders, cost.pace));
    const bool slow = cost.pattern.storers >= 2 && (cost.pace == 0 || cost.pace == 0.95);
    EXPECT_DOUBLE_EQ(cost.load_share, slow ? 0.1 : 1.0);
    const double alone = cost.pattern.storers * 30.0 / 50, wanted = cost.pace > 0 ? cost.pace : 1.0;
    EXPECT_DOUBLE_EQ(cost.store_share, std::min(alone, wanted));
    EXPECT_TRUE(cost.pattern.loaders == 16 || cost.pattern.loaders == 124);
  }
  EXPECT_EQ(table.best_pace(0.95), 0.9);
  EXPECT_EQ(table.best_pace(1.01), 0);
  EXPECT_DOUBLE_EQ(table.kept_at(0).loads, 0.1);
  EXPECT_DOUBLE_EQ(table.kept_at(0.9).loads, 1);
  EXPECT_DOUBLE_EQ(table.kept_at(0.9).stores, 0.9);
}

TEST(Neighbours, ProgressEndsAtOne) {
  double last = 0;
  probe_neighbours(narrow_link(), {}, [&](double done) {
    EXPECT_GT(done, last);
    last = done;
  });
  EXPECT_NEAR(last, 1, 1e-9);
}

TEST(Neighbours, SomebodyHasToLoad) {
  expect_usage_error([] { probe_neighbours(narrow_link(), {.storers = {132}}); }, {"storing SMs", "131"});
  expect_usage_error([] { probe_neighbours(narrow_link(), {.storers = {0}}); }, {"storing SMs"});
}

}  // namespace
}  // namespace xs
