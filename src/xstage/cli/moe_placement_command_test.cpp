#include <gtest/gtest.h>

#include "xstage/cli/program.hpp"

// Uneven tokens, expert maps, shared experts, capacity and data types on the command line.

namespace xs::cli {
namespace {

class MoePlacementCommand : public Program {
 protected:
  std::string hash(const Arguments& more) const {
    const auto json = expect_json(kRun + more);
    EXPECT_EQ(json.at("verified"), true);
    return json.at("output_hash");
  }

  // Expert e on rank e % 4, expert 0 on all of them.
  void write_map(const std::string& name) const {
    std::string text = "expert,rank\n0,1\n0,2\n0,3\n";
    for (int expert = 0; expert < 64; ++expert) text += fmt::format("{},{}\n", expert, expert % 4);
    folder_.write(name, text);
  }
};

TEST_F(MoePlacementCommand, OutputDoesNotDependOnWhereTokensAndExpertsLie) {
  write_map("map.csv");
  const auto expected = hash({"--ranks", "1", "--tokens-per-rank", "32"});
  const Arguments four{"--ranks", "4", "--tokens-per-rank"};
  EXPECT_EQ(hash(four + Arguments{"0,20,3,9"}), expected);
  EXPECT_EQ(hash(four + Arguments{"8", "--expert-map", "strided"}), expected);
  EXPECT_EQ(hash(four + Arguments{"32,0,0,0", "--expert-map", "map.csv", "--schedule", "lag:2+own-last"}), expected);
}

TEST_F(MoePlacementCommand, SharedExpertsAndRoundedInputsAreVerifiedAndChangeTheOutput) {
  const auto plain = hash(kTwoRanks);
  const auto shared = hash(kTwoRanks + Arguments{"--num-shared", "2"});
  EXPECT_NE(shared, plain);
  EXPECT_EQ(hash({"--ranks", "1", "--tokens-per-rank", "16", "--num-shared", "2"}), shared);
  EXPECT_NE(hash(kTwoRanks + Arguments{"--input-dtype", "bf16"}), plain);
}

TEST_F(MoePlacementCommand, JsonSaysHowTheLayerLies) {
  const Arguments layer{"--ranks", "2", "--tokens-per-rank", "3,5", "--num-shared", "1", "--expert-map", "strided"};
  for (const auto& command : {kRun, kSimulate}) {
    const auto json = expect_json(command + layer);
    EXPECT_EQ(json.at("num_tokens"), 8);
    EXPECT_EQ(json.at("tokens_per_rank"), (Json{3, 5}));
    EXPECT_EQ(json.at("num_shared"), 1);
    EXPECT_EQ(json.at("expert_map"), "strided");
  }
  const auto wide = expect_json(kRun + layer), narrow = expect_json(kRun + layer + Arguments{"--input-dtype", "bf16"});
  EXPECT_EQ(wide.at("input_dtype"), "fp32");
  EXPECT_LT(narrow.at("workspace_bytes"), wide.at("workspace_bytes"));
  EXPECT_NE(expect_done(kSimulate + layer).find("64 experts, top-6, 1 shared"), std::string::npos);
}

TEST_F(MoePlacementCommand, ScheduleFilesKeepThePlacement) {
  const auto layer = Arguments{"--ranks", "3", "--tokens-per-rank", "7,0,4", "--num-shared", "1"};
  const auto expected = hash(layer + Arguments{"--expert-map", "strided", "--schedule-out", "s.json"});
  EXPECT_EQ(expect_json({"check", "s.json"}).at("valid"), true);
  EXPECT_EQ(hash(layer + Arguments{"--expert-map", "strided", "--schedule", "s.json"}), expected);
  expect_refused(kRun + layer + Arguments{"--schedule", "s.json"} + kOutputs, {"s.json", "another problem"});
  expect_refused(kRun +
                     Arguments{"--ranks", "3", "--tokens-per-rank", "4,0,7", "--num-shared", "1", "--expert-map",
                               "strided", "--schedule", "s.json"} +
                     kOutputs,
                 {"s.json", "another problem", "placement"});
}

TEST_F(MoePlacementCommand, WrongListsOfTokensAreNamed) {
  for (const auto& command : {kRun + kOutputs, kSimulate}) {
    for (const char* bad : {"3,", ",3", "3,,5", "3, 5", "3,-5", "3,x", "3,99999999999", "3;5"}) {
      expect_refused(command + Arguments{"--ranks", "2", "--tokens-per-rank", bad},
                     {"--tokens-per-rank", "with commas between", fmt::format("\"{}\"", bad)});
    }
    expect_refused(command + Arguments{"--ranks", "3", "--tokens-per-rank", "3,5"},
                   {"--tokens-per-rank has 2 numbers", "each of 3 ranks"});
    expect_refused(command + Arguments{"--ranks", "2", "--tokens-per-rank", "0,0"},
                   {"--tokens-per-rank", "at least one token"});
    expect_refused(command + Arguments{"--ranks", "2", "--tokens-per-rank", "2147483647,1"},
                   {"--tokens-per-rank 2147483647,1", "32 bits"});
  }
}

TEST_F(MoePlacementCommand, WrongMapsAreNamedByFileAndExpert) {
  for (const auto& command : {kRun + kTwoRanks + kOutputs, kSimulate + kTwoRanks}) {
    expect_refused(command + Arguments{"--expert-map", "random"}, {"--expert-map random", "contiguous, strided"});
    expect_refused(command + Arguments{"--expert-map", "none.csv"}, {"none.csv"});
    folder_.write("map.csv", "expert,rank\n0,0\n");
    expect_refused(command + Arguments{"--expert-map", "map.csv"}, {"map.csv", "no rank holds expert 1"});
    write_map("map.csv");  // of four ranks
    expect_refused(command + Arguments{"--expert-map", "map.csv"}, {"map.csv:", "rank"});
  }
}

TEST_F(MoePlacementCommand, TooLittleRoomNamesTheRankWhatItNeedsAndWhatThereIs) {
  const Arguments one{"--routing", "all-to-one", "--capacity-rows"};
  for (const auto& command : {kRun + kTwoRanks, kSimulate + kTwoRanks}) {
    const auto outputs = command.front() == "run" ? kOutputs : Arguments{};
    expect_refused(command + one + Arguments{"95"} + outputs, {"rank 0 receives 96 rows", "room for 95"});
    expect_done(command + one + Arguments{"96"});
    expect_refused(command + one + Arguments{"-1"} + outputs, {"--capacity-rows", "\"-1\""});
  }
}

TEST_F(MoePlacementCommand, OtherWrongOptionsAreNamed) {
  expect_refused(kRun + Arguments{"--num-shared", "-1"} + kOutputs, {"--num-shared", "from 0 to ", "\"-1\""});
  expect_refused(kRun + Arguments{"--input-dtype", "fp8"} + kOutputs, {"data type fp8", "fp32 or bf16"});
  expect_refused(kSimulate + Arguments{"--input-dtype", "bf16"}, {"--input-dtype"});  // it computes no values
}

}  // namespace
}  // namespace xs::cli
