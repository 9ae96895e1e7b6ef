#include "xstage/sim/synthetic.hpp"

#include <gtest/gtest.h>

#include "xstage/core/test_support.hpp"
#include "xstage/plan/check.hpp"

namespace xs {
namespace {

const std::filesystem::path kRuns = XSTAGE_SOURCE_DIR "/data/synthetic_moe_combine.csv";
constexpr const char* kHeader = "dst,num_sms,hidden,intermediate,num_blocks,schedule,claim,us,local_us\n";

std::vector<SyntheticRun> read(const std::string& rows) { return parse_synthetic_runs(kHeader + rows, "runs.csv"); }

TEST(SyntheticRuns, RowsAreRead) {
  const auto runs =
      read("nvlink,132,4096,768,64,lag:8,static,307.5,140.25\nhost,16,7168,3072,16,alternate,counter,1e3,2\n");
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].dst, "nvlink");
  EXPECT_EQ(runs[0].num_sms, 132);
  EXPECT_EQ(runs[0].hidden, 4096);
  EXPECT_EQ(runs[0].intermediate, 768);
  EXPECT_EQ(runs[0].num_blocks, 64);
  EXPECT_EQ(runs[0].order, (Order{OrderKind::lag, 8}));
  EXPECT_EQ(runs[0].claim, Claim::fixed);
  EXPECT_EQ(runs[0].measured, Nanos{307500});
  EXPECT_EQ(runs[0].measured_local, Nanos{140250});
  EXPECT_EQ(runs[1].order, (Order{OrderKind::alternate, 16}));  // as many as SMs
  EXPECT_EQ(runs[1].claim, Claim::counter);
}

TEST(SyntheticRuns, WhatIsWrongIsNamedWithItsLine) {
  const auto refuse = [&](const std::string& row, const std::vector<std::string>& words) {
    expect_usage_error([&] { read(row + "\n"); }, words);
  };
  refuse("nvlink,132,4096,768,64,ripple,static,1,1", {"runs.csv:2", "ripple", "lag:N"});
  refuse("nvlink,132,4096,768,64,lag:8,dynamic,1,1", {"runs.csv:2", "dynamic", "counter"});
  refuse("nvlink,0,4096,768,64,lag:8,static,1,1", {"runs.csv:2", "num_sms"});
  refuse("nvlink,132,4096,768,0.5,lag:8,static,1,1", {"runs.csv:2", "num_blocks"});
  refuse("nvlink,132,4096,768,64,lag:8,static,0,1", {"runs.csv:2", "us"});
  refuse("nvlink,132,4096,768,64,lag:8,static,1,nan", {"runs.csv:2", "local_us"});
  refuse("nvlink,132,4096,768,64,lag:8,static,1e306,1", {"runs.csv:2", "us", "at most"});
  refuse("nvlink,132,4096", {"runs.csv:2"});
  expect_usage_error([&] { read(""); }, {"runs.csv", "rows below the header"});
  expect_usage_error([&] { parse_synthetic_runs("dst,us\nnvlink,1\n", "other.csv"); }, {"other.csv", "num_sms"});
  expect_usage_error([&] { read_synthetic_runs("none.csv"); }, {"none.csv"});
}

TEST(SyntheticProblem, IsAScheduleThatPassesTheCheck) {
  const SyntheticProblem problem(
      {.hidden = 512, .intermediate = 192, .num_blocks = 5, .linear1_bytes = 8, .linear2_bytes = 16});
  EXPECT_EQ(problem.counts().linear1_tiles, 3);
  EXPECT_EQ(problem.counts().linear2_tiles, 4);
  for (const auto* order : {"serial", "waves:2", "alternate:3", "lag:1", "lag:2"}) {
    const auto schedule = problem.schedule(parse_order(order, {1, 3}));
    require_valid(schedule, order);
    EXPECT_EQ(schedule.ranks[0].tasks.size(), 5u * (3 + 4));
    EXPECT_TRUE(schedule.ranks[1].tasks.empty());
  }
}

class SyntheticKernel : public testing::Test {
 protected:
  static const std::vector<SyntheticPrediction>& predictions() {
    static const auto all = [] {
      const auto machine = load_machine("h200");
      std::vector<SyntheticPrediction> made;
      for (const auto& run : read_synthetic_runs(kRuns)) made.push_back(predict_synthetic(run, machine));
      return made;
    }();
    return all;
  }

  // Of hidden 4096 and intermediate 768 over NVLink from 132 SMs with counter claims.
  static const SyntheticPrediction& with(const std::string& order) {
    return *std::ranges::find_if(predictions(), [&](const auto& one) {
      return one.run.dst == "nvlink" && one.run.hidden == 4096 && one.run.intermediate == 768 &&
             one.run.claim == Claim::counter && to_string(one.run.order) == order;
    });
  }

  // Both the kernel and its prediction take at least `factor` as long.
  static void expect_slower(const std::string& order, const std::string& than, double factor) {
    EXPECT_GE(with(order).run.measured / with(than).run.measured, factor) << order;
    EXPECT_GE(with(order).predicted / with(than).predicted, factor) << order;
  }
};

TEST_F(SyntheticKernel, IsToldWithinThreePercentInTheMedianAndItsBestOrderMostly) {
  EXPECT_EQ(predictions().size(), 280u);
  const auto summary = summarize(predictions());
  EXPECT_LE(summary.median_error, 0.03);
  EXPECT_LE(summary.median_local_error, 0.01);
  EXPECT_EQ(summary.choices.size(), 20u);
  EXPECT_GE(summary.num_good_choices, 16);
}

TEST_F(SyntheticKernel, ATooSmallLagLoses) { expect_slower("lag:4", "lag:8", 1.2); }

// A Linear-2 tile stores three times as fast as the link drains: where the Linear-1 tiles have run out, all wait.
TEST_F(SyntheticKernel, ATailOfLinear2AloneLoses) {
  const auto tail = [](const std::string& order) {
    const auto& run = with(order).run;
    const SyntheticShape shape{run.hidden, run.intermediate, run.num_blocks, 128, 128, 0, 28672};
    return inspect(SyntheticProblem(shape).schedule(run.order)).ranks.at(0).tail_tasks;
  };
  EXPECT_EQ(tail("waves:1"), 64 * 32);
  EXPECT_GT(tail("alternate:132"), 2 * tail("lag:8"));
  expect_slower("waves:1", "lag:8", 1.3);
  expect_slower("alternate:132", "lag:8", 1.19);
}

TEST(SyntheticSummary, ChoosesByPredictionAndIsJudgedByMeasurement) {
  const auto prediction = [](const char* dst, double measured, double predicted) {
    SyntheticPrediction one;
    one.run.dst = dst;
    one.run.measured = {measured};
    one.run.measured_local = {100};
    one.predicted = {predicted};
    one.predicted_local = {90};
    return one;
  };
  const auto summary = summarize({prediction("a", 100, 98), prediction("a", 102, 97), prediction("a", 90, 120),
                                  prediction("b", 100, 50), prediction("b", 103, 60)});
  EXPECT_NEAR(summary.median_error, 120.0 / 90 - 1, 1e-12);
  EXPECT_NEAR(summary.median_local_error, 0.1, 1e-12);
  ASSERT_EQ(summary.choices.size(), 2u);
  EXPECT_NEAR(summary.choices[0].loss(), 102.0 / 90 - 1, 1e-12);
  EXPECT_EQ(summary.choices[1].loss(), 0);
  EXPECT_EQ(summary.num_good_choices, 1);
}

}  // namespace
}  // namespace xs
