#include "xstage/cli/program.hpp"

namespace xs::cli {
namespace {

class BenchCommand : public Program {
 protected:
  const Arguments bench_{"bench", "moe84"};
  static Arguments shard(const std::string& shard) { return {"--shard", shard}; }
};

TEST_F(BenchCommand, PrintsATableAndWhatTheChoiceGains) {
  const auto out = expect_done(bench_ + shard("0/42"));
  for (const char* word : {"deepseek-v3", "qwen3-next-80b-a3b", "geometric mean", "over 2 cases", "virtual time"}) {
    EXPECT_NE(out.find(word), std::string::npos) << word << "\n" << out;
  }
}

TEST_F(BenchCommand, GoesOnWhereItWasStopped) {
  expect_done(bench_ + shard("7/84") + Arguments{"-o", "a.json"});
  auto file = Json::parse(folder_.read("a.json"));
  file["cases"][0]["runs"][0]["ns"] = 12345;
  folder_.write("a.json", file.dump());
  const auto json = expect_json(bench_ + shard("7/42") + Arguments{"-o", "a.json"});
  ASSERT_EQ(json["cases"].size(), 2u);
  EXPECT_EQ(json["cases"][0]["runs"][0]["ns"], 12345) << "was there";
  EXPECT_EQ(json["summary"]["gain"]["cases"], 2);
}

TEST_F(BenchCommand, ReportMergesShards) {
  expect_done(bench_ + shard("0/84") + Arguments{"-o", "a.json"});
  expect_done(bench_ + shard("1/84") + Arguments{"-o", "b.json"});
  const auto json = expect_json({"bench", "report", "a.json", "b.json"});
  EXPECT_EQ(json["cases"].size(), 2u);
  expect_refused({"bench", "report", "a.json", "a.json"}, {"deepseek-v3", "two files"});
}

TEST_F(BenchCommand, WhatCannotBeRunIsRefused) {
  expect_refused({"bench"}, {"moe84", "report"});
  expect_refused(bench_ + shard("3"), {"--shard", "i/n"});
  expect_refused(bench_ + shard("1/1"), {"shard 1/1"});
  expect_refused(bench_ + Arguments{"--backend", "cpu"}, {"--backend cpu", "sim or cuda"});
  expect_refused(bench_ + Arguments{"--receive", "peer"}, {"--receive peer"});
  expect_refused(bench_ + Arguments{"--machine", "b100"}, {"b100"});
  expect_refused(bench_ + Arguments{"-o", "none/a.json"}, {"none"});
  expect_refused({"bench", "report", "none.json"}, {"none.json"});
}

TEST_F(BenchCommand, AFileOfOtherSettingsIsLeftAlone) {
  expect_done(bench_ + shard("0/84") + Arguments{"-o", "a.json"});
  const auto before = folder_.read("a.json");
  expect_refused(bench_ + shard("0/84") + Arguments{"-o", "a.json", "--seed", "2"}, {"a.json", "other settings"});
  EXPECT_EQ(folder_.read("a.json"), before);
}

TEST_F(BenchCommand, WithoutAGpuItSaysSo) {
  if (has_gpu()) GTEST_SKIP() << "this machine has a GPU";
  expect_refused(bench_ + Arguments{"--backend", "cuda"}, {}, 3);
}

}  // namespace
}  // namespace xs::cli
