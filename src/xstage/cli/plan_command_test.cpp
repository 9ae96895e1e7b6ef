#include <gtest/gtest.h>

#include "xstage/cli/program.hpp"

// plan and simulate synthetic, and options from a file, as far as a person can see.

namespace xs::cli {
namespace {

class PlanCommand : public Program {
 protected:
  static void expect_words(const std::string& text, const std::vector<std::string>& words) {
    for (const auto& word : words) EXPECT_NE(text.find(word), std::string::npos) << text << "lacks " << word;
  }
};

// DeepSeek-V3 on a few ranks, so that it takes a moment.
const Arguments kPlan{"plan", "--tokens-per-rank", "512"};
const Arguments kH200 = kPlan + Arguments{"--machine", "h200"};

TEST_F(PlanCommand, TextHasEveryOrderAndEndsWithTheChoice) {
  const auto text = expect_done(kH200);
  expect_words(text, {"rho 1.41", "schedule", "claims", "serial", "wave:", "waves:2", "alternate:132", "lag:1 ",
                      "lag:8", "+own-last", "static", "sender stall", "95 % interval", "regret", "\n=> "});
  EXPECT_EQ(text.find("atasheet"), std::string::npos) << text;
}

TEST_F(PlanCommand, JsonHasWhatTheTextSays) {
  const auto json = expect_json(kH200);
  EXPECT_EQ(json.at("kind"), "moe_plan");
  EXPECT_EQ(json.at("machine"), "h200");
  EXPECT_EQ(json.at("datasheet_estimate"), false);
  EXPECT_EQ(json.at("workers"), 132);
  EXPECT_EQ(json.at("tiles_in_flight"), 2);
  EXPECT_GT(json.at("rho").get<double>(), 1.0);
  EXPECT_GE(json.at("regret").get<double>(), 0.0);
  const auto& orders = json.at("orders");
  EXPECT_GT(orders.size(), 12u);
  EXPECT_EQ(orders.at(0), json.at("choice"));
  double before = 0;
  bool baseline = false;
  for (const auto& order : orders) {
    EXPECT_GE(order.at("predicted_us").get<double>(), before);
    before = order.at("predicted_us");
    EXPECT_GE(order.at("slow_us"), order.at("fast_us"));
    baseline = baseline || order == json.at("baseline");
  }
  EXPECT_TRUE(baseline);
  EXPECT_DOUBLE_EQ(json.at("gain").get<double>(), json.at("baseline").at("predicted_us").get<double>() /
                                                      json.at("choice").at("predicted_us").get<double>());
  // The chosen order, simulated by itself.
  const auto simulated = expect_json({"simulate", "moe", "--dtype", "fp8", "--tokens-per-rank", "512", "--schedule",
                                      json.at("choice").at("schedule"), "--claim", json.at("choice").at("claim")});
  EXPECT_EQ(simulated.at("predicted_us"), json.at("choice").at("predicted_us"));
}

TEST_F(PlanCommand, AGainIsExpectedWhereLinear2OutrunsTheLink) {
  // Full blocks of every expert on an H200 with a small intermediate size.
  const auto json =
      expect_json({"plan", "--machine", "h200", "--model", "qwen3-235b-a22b", "--tokens-per-rank", "2048"});
  EXPECT_GT(json.at("rho").get<double>(), 1.5);
  EXPECT_EQ(json.at("gain_expected"), true);
  EXPECT_GE(json.at("gain").get<double>(), 1.02);
  const std::string verdict = json.at("verdict");
  expect_words(verdict, {json.at("choice").at("schedule"), "gains ", " % over wave:"});
}

TEST_F(PlanCommand, NoGainIsExpectedWhereTheLinkHidesEverything) {
  const auto h20 = kPlan + Arguments{"--machine", "h20"};
  const auto json = expect_json(h20);
  EXPECT_LE(json.at("rho").get<double>(), 1.0);
  EXPECT_EQ(json.at("gain_expected"), false);
  expect_words(json.at("verdict"), {"no gain expected", "rho 0.19"});
  expect_words(expect_done(h20), {"no gain expected", "rho 0.19"});
}

TEST_F(PlanCommand, DatasheetEstimatesSaySo) {
  for (const char* name : {"h100", "a100", "b200", "h20"}) {
    const auto on = Arguments{"plan",    "--model", "deepseek-v2-lite", "--ranks", "2", "--tokens-per-rank", "64",
                              "--dtype", "bf16",    "--machine",        name};
    expect_words(expect_done(on),
                 {std::string(name) + ": datasheet estimate", "=> Datasheet estimate: ", "no interval"});
    const auto json = expect_json(on);
    EXPECT_EQ(json.at("datasheet_estimate"), true) << name;
    EXPECT_TRUE(json.at("machine_source").get<std::string>().starts_with("datasheet estimate")) << name;
  }
}

TEST_F(PlanCommand, WithoutAMachineTheProfilesAndTheWayToANewOneAreNamed) {
  if (has_gpu()) GTEST_SKIP() << "this machine has a GPU";
  expect_refused(kPlan,
                 {"no GPU", "--machine", "a100, b200, h100, h20, h200", "measure bursts", "xstage fit SAMPLES.csv"});
}

TEST_F(PlanCommand, WhatCannotBePlannedIsRefused) {
  expect_refused(kPlan + Arguments{"--machine", "h2oo"}, {"h2oo", "h200"});
  expect_refused(kH200 + Arguments{"--dst", "moon"}, {"st16 to moon", "st16 to nvlink"});
  expect_refused(kH200 + Arguments{"--workers", "133"}, {"--workers 133", "132 SMs"});
  expect_refused(kH200 + Arguments{"--tiles-in-flight", "0"}, {"--tiles-in-flight", "\"0\""});
  expect_refused(kH200 + Arguments{"--routing", "random"}, {"routing", "balanced"});
  expect_refused({"plan", "--machine", "h200", "--tokens-per-rank", "2147483647"}, {"2147483647", "32 bits"});
}

TEST_F(PlanCommand, ConfigOfAFileStandsBetweenDefaultsAndTheCommandLine) {
  folder_.write("options.toml", "[plan]\nmachine = \"h100\"\nranks = 4\ntiles-in-flight = 1\n");
  const auto printed = [this](const Arguments& more) {
    return expect_done(Arguments{"plan", "--print-config"} + more);
  };
  expect_words(printed({}), {"[plan]\n", "ranks=8\n", "tiles-in-flight=2\n", "model=\"deepseek-v3\"\n", "workers=0\n"});
  expect_words(printed({"--config", "options.toml"}),
               {"machine=\"h100\"\n", "ranks=4\n", "tiles-in-flight=1\n", "model=\"deepseek-v3\"\n"});
  expect_words(printed({"--config", "options.toml", "--ranks", "2"}),
               {"machine=\"h100\"\n", "ranks=2\n", "tiles-in-flight=1\n"});
  // It is what runs.
  const auto json = expect_json({"plan", "--config", "options.toml", "--tokens-per-rank", "64"});
  EXPECT_EQ(json.at("machine"), "h100");
  EXPECT_EQ(json.at("num_ranks"), 4);
}

TEST_F(PlanCommand, PrintedConfigReadAgainIsTheSame) {
  const auto first = expect_done({"plan", "--print-config", "--machine", "b200", "--seed", "18446744073709551615",
                                  "--dtype", "bf16", "--workers", "7"});
  folder_.write("options.toml", first);
  EXPECT_EQ(expect_done({"plan", "--print-config", "--config", "options.toml"}), first);
  // Without a machine, too.
  folder_.write("options.toml", expect_done({"plan", "--print-config"}));
  EXPECT_EQ(expect_done({"plan", "--print-config", "--config", "options.toml"}), folder_.read("options.toml"));
}

TEST_F(PlanCommand, ConfigThatMakesNoSenseIsRefused) {
  folder_.write("key.toml", "[plan]\nspeed = 3\n");
  folder_.write("value.toml", "[plan]\nranks = \"many\"\n");
  folder_.write("section.toml", "[fly]\nranks = 3\n");
  expect_refused(kH200 + Arguments{"--config", "key.toml"}, {"plan.speed"});
  expect_refused(kH200 + Arguments{"--config", "value.toml"}, {"--ranks", "whole number", "\"many\""});
  expect_refused(kH200 + Arguments{"--config", "section.toml"}, {"fly"});
  expect_refused(kH200 + Arguments{"--config", "none.toml"}, {"none.toml"});
}

TEST_F(PlanCommand, ConfigHoldsOptionsOfSimulateToo) {
  folder_.write("options.toml", "[simulate.moe]\nranks = 2\ntokens-per-rank = 8\nlate = [\"0:3\", \"1:5\"]\n");
  const auto ranks = expect_json(kSimulate + Arguments{"--config", "options.toml"}).at("ranks");
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks.at(0).at("start_us"), 3);
  EXPECT_EQ(ranks.at(1).at("start_us"), 5);
}

// The first shape of the measured runs.
class SyntheticCommand : public PlanCommand {
 protected:
  void SetUp() override {
    std::istringstream lines(read_text(XSTAGE_SOURCE_DIR "/data/synthetic_moe_combine.csv"));
    std::string text;
    int rows = 0;
    for (std::string line; rows < 2 + 14 && std::getline(lines, line); ++rows) text += line + "\n";
    folder_.write("runs.csv", text);
  }
};

TEST_F(SyntheticCommand, LaysPredictionsBesideTheRuns) {
  const Arguments simulate{"simulate", "synthetic", "runs.csv"};
  const auto json = expect_json(simulate);
  EXPECT_EQ(json.at("kind"), "synthetic_prediction");
  EXPECT_EQ(json.at("machine"), "h200");
  EXPECT_EQ(json.at("rows"), 14);
  EXPECT_EQ(json.at("runs").size(), 14u);
  EXPECT_LT(json.at("median_abs_error").get<double>(), 0.1);
  ASSERT_EQ(json.at("shapes").size(), 1u);
  EXPECT_EQ(json.at("shapes").at(0).at("best"), "lag:8, counter");
  EXPECT_NEAR(json.at("shapes").at(0).at("best_us").get<double>(), 188.7, 1e-9);
  const auto text = expect_done(simulate);
  expect_words(text, {"nvlink", "4096", "768", "188.7", "=> 14 runs told within", "of 1 shapes"});
  EXPECT_EQ(text.find("alternate:132"), std::string::npos);
  expect_words(expect_done(simulate + Arguments{"--all"}), {"alternate:132, static", "+0.2 %"});
}

TEST_F(SyntheticCommand, WhatItCannotReadIsRefused) {
  folder_.write("bad.csv", "dst,us\nnvlink,3\n");
  expect_refused({"simulate", "synthetic"}, {"runs is required"});
  expect_refused({"simulate", "synthetic", "none.csv"}, {"none.csv"});
  expect_refused({"simulate", "synthetic", "bad.csv"}, {"bad.csv", "num_sms"});
  expect_refused({"simulate", "synthetic", "runs.csv", "--machine", "h2oo"}, {"h2oo", "h200"});
}

}  // namespace
}  // namespace xs::cli
