#include "xstage/sim/planner.hpp"

#include <gtest/gtest.h>

#include "xstage/core/test_support.hpp"
#include "xstage/plan/measured_rank.hpp"

namespace xs {
namespace {

// Eight experts on two ranks.
MoeProblem small_problem(std::int64_t intermediate) {
  const MoeShape shape{1024, intermediate, 8, 2};
  return make_problem(shape, {}, 2, make_routing("balanced", 4096, 8, 2, 1));
}

// Four workers of 1,000 flop/ns each, whose products at intermediate size I store 4,000 / I B/ns to the peer.
PlanTarget target(double drain) {
  PortParams port;
  port.free_issue = {1000};
  port.drain = {drain};
  port.capacity = {40000};
  return {{{1}, {1000}, {1e9}, port}, {}, 4, 1};
}

MoePlan plan(const MoeProblem& problem, const PlanTarget& target) { return plan_moe(problem, {}, target); }

TEST(Planner, KnowsTheTimeOfEveryOrder) {
  const auto problem = small_problem(256);
  const auto on = target(1);
  const auto result = plan(problem, on);
  std::vector<std::string> names;
  for (const auto& planned : result.orders) {
    names.push_back(to_string(planned.order) + ", " + to_string(planned.claim));
    const auto alone = simulate(problem.schedule(planned.order), on.machine, {4, planned.claim});
    EXPECT_EQ(planned.predicted, alone.makespan) << names.back();
    EXPECT_EQ(planned.breakdown.share, breakdown(alone).share) << names.back();
    EXPECT_GE(planned.predicted, result.orders[0].predicted);
    // No interval is known.
    EXPECT_EQ(planned.slow, planned.predicted);
    EXPECT_EQ(planned.fast, planned.predicted);
  }
  // 4096 tokens to two of eight experts each: 32 row blocks on a rank.
  for (const auto* name : {"serial, counter", "wave:1, counter", "waves:2, counter", "waves:8, counter",
                           "alternate:4, counter", "lag:1, counter", "lag:16, counter"}) {
    EXPECT_NE(std::ranges::find(names, name), names.end())
        << fmt::format("{}", fmt::join(names, "; ")) << " lacks " << name;
  }
  EXPECT_EQ(std::ranges::count_if(names, [](auto& name) { return name.ends_with("static"); }), 3);
  EXPECT_EQ(std::ranges::count_if(names, [](auto& name) { return name.ends_with("+own-last, counter"); }), 3);
  EXPECT_EQ(names.at(result.baseline), "wave:1, counter");
  EXPECT_EQ(result.regret, 0);
}

TEST(Planner, AMeasuredRankIsPlannedAsItRunsAlone) {
  const auto problem = small_problem(256);
  auto on = target(1);
  on.measured_rank = 1;
  for (const auto& planned : plan(problem, on).orders) {
    const auto schedule = measured_rank(problem, 1, planned.order, RowsTo::owners, {});
    const auto alone = simulate(schedule, on.machine, {4, planned.claim});
    EXPECT_EQ(planned.predicted, alone.makespan) << to_string(planned.order);
    EXPECT_EQ(planned.breakdown.share, breakdown_by_rank(alone).at(1).share) << to_string(planned.order);
  }
}

TEST(Planner, RhoIsWhatLinear2StoresOverWhatTheLinkDrains) {
  // Half of the rows are remote; 2 B per element, 2 I flops for it.
  EXPECT_DOUBLE_EQ(plan(small_problem(256), target(4)).rho, 0.5 * 2 * 4000 / (2 * 256 * 4));
}

TEST(Planner, ExpectsAGainWhereTheLinkIsTheSlowerOneForATimeOnly) {
  // Linear-2 tiles store 2.2 times as fast as the link drains, both linears together 0.73 times.
  const auto narrow = plan(small_problem(256), target(3.5));
  EXPECT_GT(narrow.rho, 1);
  EXPECT_TRUE(narrow.gain_expected);
  EXPECT_GT(narrow.gain(), 1.02);
  EXPECT_EQ(narrow.orders[0].order.kind, OrderKind::lag);
}

TEST(Planner, ExpectsNoGainWhereTheLinkHidesEverything) {
  const auto wide = plan(small_problem(256), target(100));
  EXPECT_LE(wide.rho, 1);
  EXPECT_FALSE(wide.gain_expected);
}

TEST(Planner, ExpectsNoGainWhereTheLinkIsAlwaysTheSlowerOne) {
  const auto narrow = plan(small_problem(256), target(0.1));
  EXPECT_GT(narrow.rho, 1);
  EXPECT_FALSE(narrow.gain_expected);
  EXPECT_LT(narrow.gain(), 1.02);
}

FittedParameter drain_within(const PlanTarget& on, double low, double high) {
  const double drain = on.machine.port.drain.value;
  return {"drain_bytes_per_ns", drain, low * drain, high * drain, true};
}

TEST(Planner, ExpectsNoGainThatTheModelCannotTellFromNone) {
  auto on = target(3.5);
  on.intervals = {drain_within(on, 0.9, 1.1)};
  EXPECT_TRUE(plan(small_problem(256), on).gain_expected);
  on.intervals = {drain_within(on, 0.9, 30)};
  const auto unsure = plan(small_problem(256), on);
  EXPECT_GT(unsure.gain(), 1.02);
  EXPECT_FALSE(unsure.gain_expected);
}

TEST(Planner, RegretGrowsWithTheInterval) {
  auto on = target(3.5);
  std::vector<double> regrets;
  // Where the link is very narrow or very wide all orders are alike again.
  for (const double width : {1.0, 1.1, 1.2, 1.3, 1.4, 1.5}) {
    on.intervals = {drain_within(on, 1 / width, width)};
    const auto result = plan(small_problem(256), on);
    for (const auto& planned : result.orders) {
      EXPECT_GE(planned.slow, planned.predicted * (1 - 1e-9)) << to_string(planned.order) << ", " << width;
      EXPECT_LE(planned.fast, planned.predicted * (1 + 1e-9)) << to_string(planned.order) << ", " << width;
    }
    regrets.push_back(result.regret);
  }
  EXPECT_EQ(regrets[0], 0);
  EXPECT_TRUE(std::ranges::is_sorted(regrets));
  EXPECT_GT(regrets.back(), 0.02);
}

TEST(Planner, TellsHowFarItIs) {
  std::vector<double> seen;
  const auto result = plan_moe(small_problem(256), {}, target(1), [&](double done) { seen.push_back(done); });
  EXPECT_EQ(seen.size(), result.orders.size());
  EXPECT_TRUE(std::ranges::is_sorted(seen));
  EXPECT_EQ(seen.back(), 1);
}

TEST(Planner, OneBlockHasFewOrders) {
  const auto problem = make_problem({256, 64, 1, 1}, {}, 1, make_routing("balanced", 1, 1, 1, 1));
  const auto result = plan(problem, target(1));
  EXPECT_EQ(result.orders.size(), 3u + 6u);
  EXPECT_EQ(result.gain(), 1);
  EXPECT_EQ(result.rho, 0);
  EXPECT_FALSE(result.gain_expected);
}

TEST(IntervalEnd, MovesWhatTheSamplesIdentify) {
  PortParams port;
  port.drain = {100};
  port.capacity = {1000};
  port.worker_capacity = {10};
  const std::vector<FittedParameter> intervals{{"drain_bytes_per_ns", 50, 40, 60, true},
                                               {"capacity_bytes", 1000, 1, 1e9, false},
                                               {"worker_capacity_bytes", 10, 0, 15, true},
                                               {"spread", 0.3, 0.1, 0.6, true}};
  const auto low = at_interval_end(port, intervals, false), high = at_interval_end(port, intervals, true);
  EXPECT_DOUBLE_EQ(low.drain.value, 80);  // relative to what was fitted
  EXPECT_DOUBLE_EQ(high.drain.value, 120);
  EXPECT_EQ(low.capacity, port.capacity);
  EXPECT_EQ(high.capacity, port.capacity);
  EXPECT_EQ(low.worker_capacity, port.worker_capacity);  // nothing works with 0
  EXPECT_DOUBLE_EQ(high.worker_capacity.value, 15);
  EXPECT_EQ(low.spread, port.spread);
}

TEST(ProfileOfGpu, IsTheOneOfItsChipWithTheLink) {
  EXPECT_EQ(profile_of_gpu("NVIDIA H200", "nvlink"), "h200");
  EXPECT_EQ(profile_of_gpu("NVIDIA H200 NVL", "host"), "h200");
  EXPECT_EQ(profile_of_gpu("NVIDIA H20", "nvlink"), "h20");
  EXPECT_EQ(profile_of_gpu("NVIDIA H100 80GB HBM3", "nvlink"), "h100");
  EXPECT_EQ(profile_of_gpu("NVIDIA A100-SXM4-80GB", "nvlink"), "a100");
  EXPECT_EQ(profile_of_gpu("NVIDIA H200", "moon"), "");
  EXPECT_EQ(profile_of_gpu("NVIDIA A10", "nvlink"), "");
  EXPECT_EQ(profile_of_gpu("Tesla V100-SXM2-16GB", "nvlink"), "");
  EXPECT_EQ(profile_of_gpu("", "nvlink"), "");
}

}  // namespace
}  // namespace xs
