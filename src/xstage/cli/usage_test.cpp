#include <gtest/gtest.h>

#include "xstage/cli/program.hpp"
#include "xstage/core/version.hpp"

// Options and words that make no sense, and what is said about them.

namespace xs::cli {
namespace {

using Usage = Program;

TEST_F(Usage, VersionNamesTheCommitAndTheBuild) {
  const auto out = expect_done({"--version"});
  EXPECT_NE(out.find(fmt::format("xstage {} {}\n", version(), commit())), std::string::npos) << out;
  EXPECT_NE(out.find(fmt::format("built in: {}\n", built_in())), std::string::npos) << out;
}

TEST_F(Usage, EveryCommandHasHelpThatNamesItsOptions) {
  const auto help = [this](const Arguments& command, const std::vector<std::string>& words) {
    const auto out = expect_done(command + Arguments{"--help"});
    for (const auto& word : words) EXPECT_NE(out.find(word), std::string::npos) << out << "lacks " << word;
  };
  help({}, {"probe", "fit", "predict", "plan", "simulate", "run", "check", "list", "doctor", "--config", "Exit codes"});
  help({"probe"}, {"--backend", "--drain-gbs", "--capacity-bytes", "--latency-us", "--workers", "--fit", "--json"});
  help({"fit"}, {"xstage fit", "samples", "--output", "--machine", "--json"});
  help({"predict"}, {"xstage predict", "--workers", "--bytes", "--gap-cycles", "--bursts", "--samples", "--json"});
  help({"run"}, {"xstage run", "moe"});
  help({"simulate"}, {"xstage simulate", "moe", "synthetic"});
  help({"simulate", "moe"},
       {"--tiles-in-flight", "--late", "RANK:US", "--slow", "RANK:FACTOR", "--sm-clock-ghz", "--per-rank"});
  help({"simulate", "synthetic"}, {"runs", "--machine", "--all", "--json"});
  help({"plan"}, {"--model", "--ranks", "--machine", "--workers", "--tiles-in-flight", "--print-config", "--json"});
  for (const char* command : {"run", "simulate"}) {
    help({command, "moe"},
         {"--model", "--ranks", "--tokens-per-rank", "--shrink", "--routing", "--schedule", "--seed", "--num-shared",
          "--expert-map", "--capacity-rows", "--machine", "--dtype", "--claim", "--trace", "--schedule-out", "--json"});
  }
  help({"run", "moe"}, {"--hidden-states", "--topk-idx", "--topk-weights", "--input-dtype", "--workers", "--ranks-as",
                        "--timeout-s", "--output"});
  help({"check"}, {"xstage check", "schedule", "--protocols", "--json"});
  help({"doctor"}, {"xstage doctor", "--json"});
  help({"list"}, {"xstage list", "models, routings, schedules or machines", "--json"});
}

TEST_F(Usage, MissingOrUnknownCommandListsTheCommands) {
  const std::string commands = "probe, fit, predict, plan, simulate, run, check, bench, list, doctor";
  expect_refused({}, {"xstage: ", commands, "found nothing", "xstage --help"});
  expect_refused({"fitt"}, {commands, "found \"fitt\""});
  for (const char* command : {"run", "simulate"}) {
    const auto help = fmt::format("xstage {} --help", command);
    expect_refused({command}, {"expected one of moe", "found nothing", help});
    expect_refused({command, "attention"}, {"expected one of moe", "found \"attention\"", help});
  }
}

TEST_F(Usage, UnknownOptionIsNamedWithTheHelpOfItsCommand) {
  expect_refused(kRun + Arguments{"--rank", "2"}, {"--rank", "xstage run moe --help"});
  expect_refused(kSimulate + Arguments{"--output", "o.npy"}, {"--output", "xstage simulate moe --help"});
  expect_refused({"list", "models", "--all"}, {"--all", "xstage list --help"});
  expect_refused({"fit", "a.csv", "b.csv"}, {"b.csv", "xstage fit --help"});
  expect_refused(kRun + Arguments{"--ranks"}, {"--ranks", "xstage run moe --help"});
  expect_refused({"fit"}, {"samples is required", "xstage fit --help"});
  expect_refused({"check"}, {"a schedule, or --protocols, is required", "xstage check --help"});
  expect_refused({"check", "s.json", "--protocols"}, {"schedule", "--protocols", "xstage check --help"});
}

TEST_F(Usage, NumbersOutOfRangeNameTheRangeAndWhatWasFound) {
  struct Case {
    const char* option;
    const char* expected;
    std::vector<std::string> bad;
  };
  for (const auto& [option, expected, bad] : {
           Case{"--ranks", "a whole number from 1 to 1024", {"0", "-1", "1025", "99999999999"}},
           Case{"--tokens-per-rank", "a whole number from 1 to ", {"0", "-1", "99999999999999999999"}},
           Case{"--seed", "a whole number from 0 to 18446744073709551615", {"-1", "18446744073709551616"}},
           Case{"--workers", "a whole number from 1 to 4096", {"0", "-1", "4097"}},
           Case{"--timeout-s", "a number from ", {"0", "-1", "1e99", "nan", "inf"}},
       }) {
    for (const auto& value : bad) {
      expect_refused(kRun + Arguments{option, value} + kOutputs, {option, expected, "\"" + value + "\""});
    }
  }
}

TEST_F(Usage, WhatIsNoNumberIsNamed) {
  for (const char* option : {"--ranks", "--tokens-per-rank", "--seed", "--workers"}) {
    for (const char* value : {"", "abc", "1.5", "1e3", "2x", "0x2", " 2"}) {
      expect_refused(kRun + Arguments{option, value} + kOutputs,
                     {option, "whole number", fmt::format("\"{}\"", value), "xstage run moe --help"});
    }
  }
  for (const char* option : {"--bytes", "--gap-cycles"}) {
    for (const char* value : {"", "abc", "1..5", "nan", "inf", "-1", "1e300"}) {
      expect_refused({"predict", option, value}, {option, "a number", fmt::format("\"{}\"", value)});
    }
  }
  expect_refused({"predict", "--bursts", "0"}, {"--bursts", "from 1 to ", "\"0\""});
  expect_refused({"predict", "--workers", "0"}, {"--workers", "from 1 to ", "\"0\""});
}

TEST_F(Usage, NumbersAreDecimalAndGivenOnce) {
  EXPECT_EQ(expect_json(kSimulate + Arguments{"--ranks", "010"}).at("num_ranks"), 10);
  expect_refused(kRun + Arguments{"--ranks", "2", "--ranks", "4"} + kOutputs, {"--ranks", "received 2"});
}

TEST_F(Usage, ShrinkMustDivideTheLayer) {
  const Arguments run{"run", "moe", "--model", "deepseek-v2-lite"};
  expect_refused(run + Arguments{"--shrink", "0"} + kOutputs, {"--shrink", "whole number", "\"0\""});
  expect_refused(run + Arguments{"--shrink", "3"} + kOutputs, {"shrink 3", "2048", "1408", "power of two"});
  expect_refused(run + Arguments{"--shrink", "4096"} + kOutputs, {"shrink 4096", "does not divide"});
}

TEST_F(Usage, UnknownNamesListTheKnownOnes) {
  const auto refuses = [this](const char* option, const char* value, std::vector<std::string> words) {
    words.push_back(value);
    expect_refused(Arguments{"simulate", "moe", "--trace", "trace.json", option, value}, words);
    expect_refused(Arguments{"run", "moe", option, value} + kOutputs, words);
  };
  refuses("--model", "gpt-9", {"model", "deepseek-v3", "mixtral-8x7b"});
  refuses("--routing", "random", {"routing", "balanced", "all-to-one"});
  refuses("--schedule", "ripple", {"schedule", "serial", "wave[:N]", "lag:N", "+own-last"});
  refuses("--schedule", "wave:0", {"schedule", "N >= 1"});
  refuses("--schedule", "wave:x", {"schedule", "N >= 1"});
  refuses("--schedule", "lag", {"schedule", "lag:N", "N >= 1", "row blocks"});
  refuses("--machine", "h2oo", {"machine", "h200"});
  refuses("--dtype", "fp3", {"dtype", "bf16", "fp8"});
  refuses("--claim", "dynamic", {"claim", "static", "counter"});
  refuses("--path", "st17", {"st17 to nvlink", "st16 to nvlink", "bulk8192 to host"});
  refuses("--dst", "moon", {"st16 to moon", "st16 to nvlink"});
  expect_refused({"predict", "--machine", "h2oo"}, {"h2oo", "h200"});
  expect_refused({"predict", "--path", "st17"}, {"st17 to nvlink", "st16 to nvlink"});
  expect_refused({"list"}, {"models, routings, schedules or machines", "nothing"});
  expect_refused({"list", "things"}, {"models, routings, schedules or machines", "\"things\""});
}

TEST_F(Usage, LayersBeyondThirtyTwoBitsOfRowsAreRefused) {
  expect_refused(kRun + Arguments{"--tokens-per-rank", "2147483647", "--ranks", "8"} + kOutputs,
                 {"2147483647", "8 ranks", "top-6", "32 bits"});
  expect_refused(kRun + Arguments{"--ranks", "1024", "--workers", "5"} + kOutputs,
                 {"--ranks 1024", "--workers 5", "4096"});
}

TEST_F(Usage, ResultThatCannotBePrintedIsAnError) {
  const int status = std::system("'" XSTAGE_PROGRAM "' list models >/dev/full 2>/dev/null");
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 2);
}

TEST_F(Usage, OutputsThatCannotBeAreRefusedBeforeAnythingRuns) {
  std::filesystem::create_directory(folder_ / "sub");
  const auto run = kRun + kTwoRanks;
  for (const char* option : {"--trace", "--schedule-out", "--output"}) {
    // The other files must not appear either.
    for (const auto& [place, word] :
         {std::pair{"none/file", "the folder none does not exist"}, {"sub", "found a folder"}}) {
      Arguments outputs;
      for (const char* other : {"--trace", "--schedule-out", "--output"}) {
        outputs = outputs + Arguments{other, other == std::string(option) ? place : std::string(other).substr(2)};
      }
      expect_refused(run + outputs, {place, word});
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "sub"));
}

}  // namespace
}  // namespace xs::cli
