#include "xstage/bench/moe_bench.hpp"

#include <gtest/gtest.h>

#include <set>

#include "xstage/bench/moe_summary.hpp"
#include "xstage/core/json.hpp"
#include "xstage/core/test_support.hpp"

namespace xs::bench {
namespace {

MoeBench simulated() {
  MoeBench bench;
  bench.machine = load_machine("h200");
  bench.dst = "host";
  bench.receive = GpuPlace::far;
  bench.make_timer = simulated_ranks(bench.machine, bench.dst);
  return bench;
}

MoeCase case_of(const std::string& model, std::int64_t tokens) { return {find_moe_model(model), tokens}; }

TimedRun run_of(double median, double predicted) {
  return {{OrderKind::serial}, Claim::counter, RowsTo::owners, {predicted}, {median}, {median}, {median}, 5};
}

// Choice 100, waves `waves`, best `best`; predicted `predicted`.
MoeRecord record_of(double rho, double waves, double best, double predicted) {
  MoeRecord record{};
  record.model = fmt::format("model at {}", rho);
  record.tokens_per_rank = 8;
  record.workers = 18;
  record.rho = rho;
  record.bytes_to_peers = 80;
  record.drain = 1;
  record.runs = {run_of(100, predicted), run_of(waves, waves), run_of(best, best)};
  record.baseline = 1;
  record.local = {run_of(96, 0), run_of(95, 0)};
  record.bare = {run_of(90, 0)};
  record.shares = {{"choice", 0.5, 0.25, 0.125, 0.0625, 0.0625}};
  return record;
}

MoeSettings settings_of(const std::string& commit) { return {"sim", "host", "h200", "", "", commit, 0, 0.5, 1}; }

TEST(Moe84, HasTwelveModelsAtSevenNumbersOfTokens) {
  std::set<std::string> models;
  std::set<std::int64_t> tokens;
  for (const auto& one : moe84()) {
    models.insert(one.model.name);
    tokens.insert(one.tokens_per_rank);
  }
  EXPECT_EQ(moe84().size(), 84u);
  EXPECT_EQ(models.size(), 12u);
  EXPECT_EQ(tokens, (std::set<std::int64_t>{8, 32, 128, 512, 1024, 2048, 8192}));
}

TEST(Moe84, ShardsAreTheWhole) {
  std::size_t count = 0;
  for (int i = 0; i < 5; ++i) count += moe84({i, 5}).size();
  EXPECT_EQ(count, 84u);
  EXPECT_EQ(moe84({83, 84}).front().tokens_per_rank, 8192);
  for (const Shard bad : {Shard{-1, 2}, Shard{2, 2}, Shard{0, 0}}) expect_usage_error([&] { moe84(bad); }, {"i/n"});
}

TEST(Moe84, PcieGetsAsManySmsAsMakeItNvlinksRatio) {
  EXPECT_EQ(workers_of(case_of("deepseek-v3", 512), GpuPlace::far, 132), 18);
  EXPECT_EQ(workers_of(case_of("deepseek-v3", 128), GpuPlace::far, 132), 132);
  EXPECT_EQ(workers_of(case_of("deepseek-v3", 512), GpuPlace::own, 132), 132);
}

TEST(MoeBench, TimesEveryOrderOfThePlannerWithItsControls) {
  const auto record = simulated().run(case_of("qwen3-30b-a3b", 512));
  EXPECT_GT(record.runs.size(), 10u);
  EXPECT_EQ(record.runs[record.baseline].claim, Claim::counter);
  EXPECT_EQ(record.runs[record.baseline].order.kind, OrderKind::wave);
  for (const auto& run : record.runs) {
    EXPECT_EQ(run.rows_to, RowsTo::owners);
    EXPECT_DOUBLE_EQ(run.median.value, run.predicted.value) << to_string(run.order);  // the same virtual time
  }
  EXPECT_EQ(record.local.size(), 3u);
  EXPECT_EQ(record.bare.size(), 1u);
  EXPECT_LT(record.local_time(), record.choice().median);
  // Tokens and rows of 7 of 8 ranks.
  EXPECT_NEAR(record.bytes_to_peers, 2 * 512 * 8 * 7 / 8 * 2048 * 2, 0.02 * record.bytes_to_peers);
  ASSERT_EQ(record.shares.size(), 3u);
  for (const auto& one : record.shares) {
    EXPECT_NEAR(one.products + one.operand_stall + one.sender_stall + one.sums + one.rest, 1, 1e-9) << one.what;
  }
  EXPECT_EQ(record.shares[2].sender_stall, 0) << "nothing leaves";
}

TEST(MoeBench, OneWorkerCountForAllIfAskedFor) {
  auto bench = simulated();
  bench.workers = 33;
  EXPECT_EQ(bench.run(case_of("gpt-oss-120b", 8)).workers, 33);
}

TEST(MoeFile, ReadsAgainAsItWasWritten) {
  const MoeFile file{settings_of("abc"), {simulated().run(case_of("mixtral-8x7b", 32)), record_of(2, 130, 90, 80)}};
  const auto text = to_text(to_json(file));
  const auto again = parse_moe_file(text, "file");
  EXPECT_EQ(to_text(to_json(again)), text);
  EXPECT_EQ(again.settings, file.settings);
  EXPECT_EQ(again.records[1].local_time(), Nanos{95});
  EXPECT_EQ(again.records[1].local[0].rows_to, RowsTo::own);
}

TEST(MoeFile, MistakesAreNamed) {
  const auto good = to_json(MoeFile{settings_of("abc"), {record_of(2, 130, 90, 80)}});
  const auto expect_refused = [&](const char* pointer, const Json& value, const std::vector<std::string>& words) {
    Json bad = good;
    bad[Json::json_pointer(pointer)] = value;
    expect_usage_error([&] { parse_moe_file(to_text(bad), "f.json"); }, words);
  };
  expect_refused("/kind", "moe_plan", {"f.json", "moe_bench"});
  expect_refused("/cases/0/baseline", 3, {"f.json", "cases[0]", "run 3 of 3"});
  expect_refused("/cases/0/runs", Json::array(), {"cases[0]", "runs"});
  expect_refused("/cases/0/runs/1/ns", 0, {"runs[1]", "ns"});
  expect_refused("/cases/0/runs/1/schedule", "best", {"runs[1]", "best"});
  expect_refused("/cases/0/drain_gbs", -1, {"drain_gbs"});
}

TEST(MoeFile, ShardsMergeIfTheirSettingsAreTheSameAndNoCaseStandsTwice) {
  const MoeFile one{settings_of("abc"), {record_of(2, 130, 90, 80)}}, two{settings_of("abc"), {record_of(3, 1, 1, 1)}};
  EXPECT_EQ(merge(std::vector{one, two}).records.size(), 2u);
  expect_usage_error([&] { merge(std::vector{one, one}); }, {"model at 2", "two files"});
  expect_usage_error([&] { merge(std::vector{one, MoeFile{settings_of("def"), {}}}); }, {"abc", "def"});
}

TEST(MoeSummary, CountsWhatTheRecordsSay) {
  const std::vector<MoeRecord> records{record_of(0.5, 98, 98, 100), record_of(2, 150, 100, 110),
                                       record_of(3, 96, 96, 150)};
  const auto summary = summarize(records);
  EXPECT_EQ(summary.all.cases, 3u);
  EXPECT_NEAR(summary.all.geometric_mean, std::cbrt(0.98 * 1.5 * 0.96), 1e-12);
  EXPECT_EQ(summary.crowded.cases, 2u);
  EXPECT_DOUBLE_EQ(summary.crowded.most, 1.5);
  EXPECT_DOUBLE_EQ(summary.crowded.least, 0.96);
  EXPECT_EQ(summary.num_slower, 2u);
  EXPECT_EQ(summary.num_near_best, 1u);
  EXPECT_EQ(summary.num_near_bound, 3u);  // 100 against 95
  EXPECT_NEAR(summary.median_error, 0.1, 1e-12);
  EXPECT_EQ(summary.outliers, std::vector<std::size_t>{2});
  EXPECT_EQ(summarize({}).all.cases, 0u);
}

}  // namespace
}  // namespace xs::bench
