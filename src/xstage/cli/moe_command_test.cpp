#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <set>

#include "xstage/cli/program.hpp"
#include "xstage/core/npy.hpp"
#include "xstage/plan/routing.hpp"

// run moe and simulate moe, as far as a person can see.

namespace xs::cli {
namespace {

class MoeCommand : public Program {
 protected:
  std::string hash(const Arguments& more) const {
    const auto json = expect_json(kRun + more);
    EXPECT_EQ(json.at("verified"), true);
    return json.at("output_hash");
  }

  // Eight tokens of deepseek-v2-lite / 64: token 0 goes nowhere, the others to distinct experts.
  void write_inputs(const std::string& suffix = "") {
    Array<std::int64_t> experts{{8, 6}, std::vector<std::int64_t>(48, -1)};
    Array<float> weights{{8, 6}, std::vector<float>(48, 0.25f)};
    Array<float> tokens{{8, 32}, std::vector<float>(256)};
    for (std::size_t i = 6; i < 48; ++i) experts.values[i] = static_cast<std::int64_t>(i * 5 % 64);
    for (std::size_t i = 0; i < 256; ++i) tokens.values[i] = 0.01f * static_cast<float>(i % 23) - 0.1f;
    write_npy(folder_ / ("idx" + suffix), experts);
    write_npy(folder_ / ("weights" + suffix), weights);
    write_npy(folder_ / ("tokens" + suffix), tokens);
  }
};

const Arguments kFromFiles{"--topk-idx", "idx", "--topk-weights", "weights", "--hidden-states", "tokens"};

void expect_shares_of_one(const Json& breakdown) {
  double sum = 0;
  for (const char* share : {"compute", "operand_stall", "sender_stall", "dependency_wait", "tail"}) {
    const double value = breakdown.at(share);
    EXPECT_GE(value, 0.0) << share;
    sum += value;
  }
  EXPECT_NEAR(sum, 1.0, 1e-6);
  EXPECT_GT(breakdown.at("makespan_us").get<double>(), 0.0);
}

TEST_F(MoeCommand, RunSaysWhatRanAndHowItWasVerified) {
  const auto json = expect_json(kRun + kTwoRanks + Arguments{"--seed", "7"});
  EXPECT_EQ(json.at("kind"), "moe_run");
  EXPECT_EQ(json.at("model"), "deepseek-v2-lite");
  EXPECT_EQ(json.at("hidden"), 2048 / 64);
  EXPECT_EQ(json.at("intermediate"), 1408 / 64);
  EXPECT_EQ(json.at("num_ranks"), 2);
  EXPECT_EQ(json.at("num_tokens"), 16);
  EXPECT_EQ(json.at("seed"), 7);
  EXPECT_EQ(json.at("schedule"), "serial");
  EXPECT_EQ(json.at("verified"), true);
  EXPECT_EQ(json.at("verification").at("tokens"), 16);
  EXPECT_LE(json.at("verification").at("max_relative_error").get<double>(),
            json.at("verification").at("tolerance").get<double>());
  EXPECT_EQ(json.at("output_hash").get<std::string>().size(), 16u);
  EXPECT_EQ(json.at("breakdown").at("clock"), "virtual");
  expect_shares_of_one(json.at("breakdown"));
}

TEST_F(MoeCommand, RunLaysThePredictionOfTheFullSizeBesideIt) {
  const auto plan = expect_json(kRun + kTwoRanks + Arguments{"--schedule", "wave:3"}).at("plan");
  EXPECT_EQ(plan.at("machine"), "h200");
  EXPECT_EQ(plan.at("hidden"), 2048);
  EXPECT_EQ(plan.at("schedule"), "wave:3");
  EXPECT_GT(plan.at("rho").get<double>(), 0.0);
  expect_shares_of_one(plan.at("breakdown"));
  std::map<std::string, double> orders;
  for (const auto& order : plan.at("orders")) orders[order.at("schedule")] = order.at("predicted_us");
  EXPECT_EQ(orders.size(), 3u);  // serial and the default waves, and the one that was asked for
  EXPECT_TRUE(orders.contains("serial"));
  EXPECT_EQ(orders.at("wave:3"), plan.at("predicted_us"));
  // The same as to simulate it at full size.
  const auto simulated =
      expect_json(Arguments{"simulate", "moe", "--model", "deepseek-v2-lite", "--schedule", "wave:3"} + kTwoRanks);
  EXPECT_EQ(simulated.at("predicted_us"), plan.at("predicted_us"));
}

TEST_F(MoeCommand, SharesOfARunAreThoseOfItsSimulation) {
  for (const char* dtype : {"bf16", "fp8"}) {
    const auto same = kTwoRanks + Arguments{"--dtype", dtype, "--schedule", "wave:2"};
    auto run = expect_json(kRun + same).at("breakdown");
    run.erase("clock");
    EXPECT_EQ(run, expect_json(kSimulate + same).at("breakdown")) << dtype;
  }
}

TEST_F(MoeCommand, TextEndsWithWhatItMeans) {
  const auto run = expect_done(kRun + kTwoRanks);
  for (const char* word : {"output hash ", "sender stall", "=> Executed: deepseek-v2-lite on 2 CPU ranks",
                           "every compared token equals the reference", "=> Predicted: full size on NVIDIA H200"}) {
    EXPECT_NE(run.find(word), std::string::npos) << run << "lacks " << word;
  }
  EXPECT_NE(run.find(hash(kTwoRanks)), std::string::npos);
  // The order that was asked for is the one that is compared with serial.
  const auto lag = expect_done(kRun + kTwoRanks + Arguments{"--schedule", "lag:2"});
  EXPECT_NE(lag.find(" us, lag:2 "), std::string::npos) << lag;
  const auto simulated = expect_done(kSimulate + kTwoRanks);
  EXPECT_NE(simulated.find("=> serial takes "), std::string::npos) << simulated;
}

TEST_F(MoeCommand, OutputDoesNotDependOnHowItWasComputed) {
  const Arguments total{"--tokens-per-rank", "32", "--ranks", "1"};
  const auto expected = hash(total);
  EXPECT_EQ(hash(total), expected);
  EXPECT_EQ(hash({"--tokens-per-rank", "16", "--ranks", "2"}), expected);
  EXPECT_EQ(hash({"--tokens-per-rank", "8", "--ranks", "4"}), expected);
  for (const char* schedule :
       {"wave", "wave:1000", "waves:2", "alternate", "alternate:3+own-last", "lag:1", "lag:2+own-first"}) {
    EXPECT_EQ(hash({"--tokens-per-rank", "8", "--ranks", "4", "--schedule", schedule}), expected) << schedule;
  }
  EXPECT_EQ(hash({"--tokens-per-rank", "8", "--ranks", "4", "--claim", "static", "--workers", "2"}), expected);
}

TEST_F(MoeCommand, OutputDependsOnSeedAndRouting) {
  const std::set<std::string> hashes{hash(kTwoRanks), hash(kTwoRanks + Arguments{"--seed", "2"}),
                                     hash(kTwoRanks + Arguments{"--routing", "zipf"})};
  EXPECT_EQ(hashes.size(), 3u);
}

TEST_F(MoeCommand, EveryRoutingRunsOnMoreRanksThanItHasWorkFor) {
  for (const auto& routing : list_routings()) {
    hash({"--routing", routing.name, "--ranks", "5", "--tokens-per-rank", "3"});
  }
}

TEST_F(MoeCommand, SimulatedTraceIsTheSameByteForByte) {
  const auto trace = [this](const std::string& name, const std::string& seed) {
    expect_done(kSimulate + Arguments{"--ranks", "4", "--routing", "zipf", "--seed", seed, "--trace", name});
    return folder_.read(name);
  };
  const auto first = trace("a", "3");
  EXPECT_EQ(trace("b", "3"), first);
  EXPECT_NE(trace("c", "4"), first);
}

TEST_F(MoeCommand, TracesHaveSpansAndCountersOfEveryRank) {
  expect_done(kSimulate + kTwoRanks + Arguments{"--trace", "simulated.json"});
  expect_done(kRun + kTwoRanks + Arguments{"--trace", "run.json"});
  const auto count = [this](const std::string& name) {
    const auto trace = Json::parse(folder_.read(name));
    std::map<std::string, std::set<int>> ranks;  // by phase
    for (const auto& event : trace.at("traceEvents")) {
      ranks[event.at("ph")].insert(event.at("pid").get<int>());
    }
    return ranks;
  };
  const std::set<int> two{0, 1}, four{0, 1, 2, 3}, predicted{2, 3};
  EXPECT_EQ(count("simulated.json").at("X"), two);
  EXPECT_EQ(count("simulated.json").at("C"), two);
  EXPECT_EQ(count("run.json").at("M"), four);
  EXPECT_EQ(count("run.json").at("X"), four);
  EXPECT_EQ(count("run.json").at("C"), predicted);
}

TEST_F(MoeCommand, LateAndSlowRanksStandOutOnTheOneTimeAxisOfTheTrace) {
  const Arguments four{"--ranks", "4", "--tokens-per-rank", "8", "--trace", "trace.json"};
  const auto first_spans = [this] {
    const auto trace = Json::parse(folder_.read("trace.json"));
    std::map<int, double> first;  // by rank
    for (const auto& event : trace.at("traceEvents")) {
      if (event.at("ph") == "X") first.try_emplace(event.at("pid"), event.at("ts"));
    }
    return first;
  };
  const auto alike = expect_json(kSimulate + four);
  for (const auto& [rank, begin] : first_spans()) EXPECT_EQ(begin, 0) << "rank " << rank;
  const auto differ =
      expect_json(kSimulate + four + Arguments{"--late", "2:150", "--late", "3:20.5", "--slow", "1:0.5"});
  EXPECT_EQ(first_spans(), (std::map<int, double>{{0, 0}, {1, 0}, {2, 150}, {3, 20.5}}));
  EXPECT_GE(differ.at("predicted_us").get<double>(), 150.0);
  EXPECT_GT(differ.at("predicted_us"), alike.at("predicted_us"));
  const auto& ranks = differ.at("ranks");
  ASSERT_EQ(ranks.size(), 4u);
  double compute = 0;
  for (const auto& rank : ranks) {
    expect_shares_of_one(rank);
    compute += rank.at("compute").get<double>() / 4;
  }
  EXPECT_NEAR(compute, differ.at("breakdown").at("compute").get<double>(), 1e-9);
  EXPECT_EQ(ranks.at(2).at("rank"), 2);
  EXPECT_EQ(ranks.at(2).at("start_us"), 150);
  EXPECT_EQ(ranks.at(1).at("clock_factor"), 0.5);
  EXPECT_EQ(ranks.at(0).at("start_us"), 0);
  EXPECT_EQ(ranks.at(0).at("clock_factor"), 1);
  EXPECT_GT(ranks.at(1).at("compute"), ranks.at(0).at("compute"));
}

TEST_F(MoeCommand, PerRankPrintsALineForEveryRank) {
  const auto text =
      expect_done(kSimulate + Arguments{"--ranks", "3", "--late", "1:12.5", "--slow", "2:0.75", "--per-rank"});
  std::istringstream lines(text);
  std::map<std::string, std::string> ranks;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream cells(line);
    std::string rank, start, clock;
    if (cells >> rank >> start >> clock) ranks[rank] = start + " " + clock;
  }
  EXPECT_EQ(ranks["0"], "0.0 1.00");
  EXPECT_EQ(ranks["1"], "12.5 1.00");
  EXPECT_EQ(ranks["2"], "0.0 0.75");
}

TEST_F(MoeCommand, RanksThatDifferAreNamedAsRankAndNumber) {
  for (const char* bad :
       {"2:5", "-1:5", "1", "1:", ":5", "1:x", "1:5x", "1-5", "", "1:-1", "1:nan", "1:inf", "1:1e99"}) {
    expect_refused(kSimulate + kTwoRanks + Arguments{"--late", bad},
                   {"--late", "RANK:US", "from 0 to 1", fmt::format("\"{}\"", bad)});
  }
  for (const char* bad : {"2:1", "1:0", "1:-0.5", "1", "1:1e9"}) {
    expect_refused(kSimulate + kTwoRanks + Arguments{"--slow", bad},
                   {"--slow", "RANK:FACTOR", "from 0 to 1", "0.01", fmt::format("\"{}\"", bad)});
  }
  expect_refused(kSimulate + Arguments{"--sm-clock-ghz", "-1"}, {"--sm-clock-ghz", "\"-1\""});
  expect_refused(kSimulate + Arguments{"--tiles-in-flight", "0"}, {"--tiles-in-flight", "\"0\""});
  expect_refused(kRun + Arguments{"--late", "1:5"}, {"--late"});  // CPU ranks are as late as they are
}

TEST_F(MoeCommand, AClockThatDropsSlowsComputeBoundLayersInProportion) {
  // Full tiles of eight experts on one rank: products alone.
  const Arguments layer{"simulate",          "moe",  "--model", "mixtral-8x7b", "--ranks",   "1",
                        "--tokens-per-rank", "8192", "--dtype", "bf16",         "--machine", "h200"};
  const auto at = [&](const char* clock) { return expect_json(layer + Arguments{"--sm-clock-ghz", clock}); };
  const auto full = at("1.98"), half = at("0.99");
  EXPECT_EQ(half.at("sm_clock_ghz"), 0.99);
  EXPECT_EQ(full.at("predicted_us"), expect_json(layer).at("predicted_us"));
  EXPECT_NEAR(half.at("predicted_us").get<double>() / full.at("predicted_us").get<double>(), 2, 0.1);
}

TEST_F(MoeCommand, TwoTilesInFlightAreTheDefaultAndFasterThanOne) {
  const Arguments layer{"simulate", "moe", "--model", "deepseek-v2-lite", "--ranks", "4", "--tokens-per-rank", "256"};
  const auto with = [&](const Arguments& more) { return expect_json(layer + more); };
  const auto two = with({});
  EXPECT_EQ(two.at("tiles_in_flight"), 2);
  EXPECT_EQ(with({"--tiles-in-flight", "2"}).at("predicted_us"), two.at("predicted_us"));
  EXPECT_GT(with({"--tiles-in-flight", "1"}).at("predicted_us"), two.at("predicted_us"));
}

TEST_F(MoeCommand, SimulationSaysHowMuchWorkItWas) {
  const auto json = expect_json(kSimulate + kTwoRanks);
  expect_done(kSimulate + kTwoRanks + Arguments{"--schedule-out", "s.json"});
  std::int64_t tasks = 0;
  const auto checked = expect_json({"check", "s.json"});
  for (const auto& rank : checked.at("ranks")) tasks += rank.at("tasks").get<std::int64_t>();
  EXPECT_EQ(json.at("tasks"), tasks);
  EXPECT_GT(json.at("simulation_seconds").get<double>(), 0.0);
}

TEST_F(MoeCommand, DatasheetEstimatesSaySo) {
  for (const auto& command : {kSimulate, kRun}) {
    const auto text = expect_done(command + kTwoRanks + Arguments{"--machine", "h20"});
    EXPECT_NE(text.find("h20: datasheet estimate"), std::string::npos) << text;
    EXPECT_EQ(expect_done(command + kTwoRanks).find("datasheet estimate"), std::string::npos);
  }
  const auto json = expect_json(kSimulate + kTwoRanks + Arguments{"--machine", "h20"});
  EXPECT_TRUE(json.at("machine_source").get<std::string>().starts_with("datasheet estimate"));
}

TEST_F(MoeCommand, ScheduleFileIsCheckedAndRunsAsTheOrderItCameFrom) {
  const auto wave = kTwoRanks + Arguments{"--schedule", "wave:4"};
  const auto expected = hash(wave + Arguments{"--schedule-out", "s.json"});
  const auto checked = expect_json({"check", "s.json"});
  EXPECT_EQ(checked.at("valid"), true);
  ASSERT_EQ(checked.at("ranks").size(), 2u);
  for (const auto& rank : checked.at("ranks")) EXPECT_GT(rank.at("tasks").get<int>(), 64);
  EXPECT_EQ(checked.at("faults").size(), 0u);
  EXPECT_NE(expect_done({"check", "s.json"}).find("=> s.json: valid; 2 ranks"), std::string::npos);

  const auto from_file = kTwoRanks + Arguments{"--schedule", "s.json"};
  const auto text = expect_done(kRun + from_file);
  EXPECT_NE(text.find("schedule s.json"), std::string::npos) << text;
  EXPECT_NE(text.find("full size, serial"), std::string::npos) << text;  // the file knows no other size
  EXPECT_EQ(hash(from_file + Arguments{"--schedule-out", "again.json"}), expected);
  EXPECT_EQ(folder_.read("again.json"), folder_.read("s.json"));
  EXPECT_EQ(expect_json(kSimulate + from_file).at("predicted_us"), expect_json(kSimulate + wave).at("predicted_us"));
  // By any name that is no order's.
  std::filesystem::rename(folder_ / "s.json", folder_ / "s.txt");
  EXPECT_EQ(hash(kTwoRanks + Arguments{"--schedule", "s.txt"}), expected);
  std::filesystem::rename(folder_ / "s.txt", folder_ / "plain");
  EXPECT_EQ(hash(kTwoRanks + Arguments{"--schedule", "./plain"}), expected);
}

TEST_F(MoeCommand, RunsOnTokensAndRoutingFromFiles) {
  write_inputs();
  std::string expected;
  for (const char* ranks : {"1", "3"}) {
    const auto json = expect_json(kRun + kFromFiles + Arguments{"--ranks", ranks, "--output", "out.npy"});
    EXPECT_EQ(json.at("verified"), true);
    EXPECT_EQ(json.at("num_tokens"), 8);
    EXPECT_EQ(json.at("routing"), "idx");
    if (expected.empty()) expected = json.at("output_hash");
    EXPECT_EQ(json.at("output_hash"), expected);
  }
  const auto out = read_npy_floats(folder_ / "out.npy");
  EXPECT_EQ(out.shape, (std::vector<std::int64_t>{8, 32}));
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(out.values[i], 0.0f);  // no expert
  for (std::size_t i = 32; i < 256; ++i) EXPECT_NE(out.values[i], 0.0f);
}

TEST_F(MoeCommand, OutputIsTheWeightedSumOverTheSlots) {
  write_inputs();
  const auto output = [this] {
    expect_done(kRun + kFromFiles + Arguments{"--output", "out.npy"});
    return read_npy_floats(folder_ / "out.npy").values;
  };
  const auto once = output();
  auto weights = read_npy_floats(folder_ / "weights");
  for (float& weight : weights.values) weight *= 2;
  write_npy(folder_ / "weights", weights);
  const auto twice = output();
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_EQ(twice[i], 2 * once[i]);  // exact: a power of two
}

TEST_F(MoeCommand, LayerBeyondTheMemoryIsNotAvailableHere) {
  // 896 experts of 3 x 3584 x 3072 floats.
  const double present = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (present > 130 * 0x1p30) GTEST_SKIP() << "this machine has the memory";
  expect_refused(Arguments{"run", "moe", "--model", "kimi-k3", "--ranks", "1", "--tokens-per-rank", "1"} + kOutputs,
                 {"110.3 GiB", "--shrink"}, 3);
}

TEST_F(MoeCommand, WaitThatExpiresIsATimeoutThatNamesTheWait) {
  expect_refused(kRun + Arguments{"--ranks", "4", "--timeout-s", "1e-6"} + kOutputs, {"waited", "expected", "seen"}, 4);
}

TEST_F(MoeCommand, ProcessesGiveTheHashOfThreads) {
  EXPECT_EQ(hash(kTwoRanks + Arguments{"--ranks-as", "processes"}), hash(kTwoRanks));
}

TEST_F(MoeCommand, OptionsOfTheOtherBackendAreRefused) {
  expect_refused(kRun + Arguments{"--backend", "tpu"}, {"--backend tpu", "cpu or cuda"});
  for (const char* option : {"--device", "--sms-per-rank", "--repeats", "--pace"}) {
    expect_refused(kRun + Arguments{option, "1"}, {option, "--backend cuda"});
  }
  const auto on_gpu = kRun + Arguments{"--backend", "cuda"};
  expect_refused(on_gpu + Arguments{"--workers", "2"}, {"--workers", "--backend cpu"});
  expect_refused(on_gpu + Arguments{"--receive", "peer"}, {"--receive peer", "own or host"});
  expect_refused(on_gpu + Arguments{"--schedule-out", "s.json"}, {"--schedule-out", "--backend cpu"});
}

// With and without CUDA in the build, with and without a GPU in the machine.
TEST_F(MoeCommand, OnAGpuEitherRunsOrSaysWhyNot) {
  const Arguments on_gpu{"run",       "moe",     "--model", "deepseek-v2-lite",  "--shrink",
                         "8",         "--ranks", "2",       "--tokens-per-rank", "16",
                         "--backend", "cuda",    "--json"};
  const auto outcome = run(on_gpu);
  if (outcome.code == 0) {
    EXPECT_EQ(Json::parse(outcome.out).at("verified"), true);
  } else {
    EXPECT_EQ(outcome.code, 3) << outcome.err;
  }
}

}  // namespace
}  // namespace xs::cli
