#include <gtest/gtest.h>

#include <cmath>

#include "xstage/cli/program.hpp"
#include "xstage/core/npy.hpp"

// Files that cannot be used: each is refused by name, nothing runs and nothing is written.

namespace xs::cli {
namespace {

class BadInput : public Program {
 protected:
  BadInput() {
    for (std::size_t i = 0; i < 24; ++i) experts.values.push_back(static_cast<std::int64_t>(i * 5 % 64));
    write();
  }
  void write() {
    write_npy(folder_ / "idx.npy", experts);
    write_npy(folder_ / "weights.npy", weights);
    write_npy(folder_ / "tokens.npy", tokens);
  }
  void refuses(const std::vector<std::string>& words) {
    write();
    expect_refused(run_ + kOutputs, words);
  }
  // One file as these bytes.
  void refuses_file(const std::string& file, const std::string& text, std::vector<std::string> words) {
    write();
    folder_.write(file, text);
    words.push_back(file);
    expect_refused(run_ + kOutputs, words);
  }

  // Four tokens of deepseek-v2-lite / 64.
  Array<std::int64_t> experts{{4, 6}, {}};
  Array<float> weights{{4, 6}, std::vector<float>(24, 0.25f)};
  Array<float> tokens{{4, 32}, std::vector<float>(128, 0.5f)};
  const Arguments run_ = kRun + Arguments{"--topk-idx",      "idx.npy",    "--topk-weights", "weights.npy",
                                          "--hidden-states", "tokens.npy", "--ranks",        "2"};
};

TEST_F(BadInput, GoodFilesRun) { EXPECT_EQ(expect_json(run_).at("verified"), true); }

TEST_F(BadInput, ExpertOutOfRangeIsNamedByTokenAndSlot) {
  for (const std::int64_t bad : {std::int64_t{64}, std::int64_t{-2}, std::int64_t{1} << 32}) {
    experts.values[6 + 2] = bad;
    refuses({"idx.npy", "token 1, slot 2", fmt::format("expert {} ", bad), "-1", "to 63"});
  }
}

TEST_F(BadInput, ExpertNamedTwiceByATokenIsRefused) {
  experts.values[6 + 2] = experts.values[6 + 5];
  refuses({"idx.npy", "token 1", fmt::format("expert {} twice", experts.values[6 + 5])});
}

TEST_F(BadInput, ShapesThatDoNotFitTogetherAreNamed) {
  experts.shape = {6, 4};
  refuses({"idx.npy", "[num_tokens, 6] expected", "[6, 4] found"});
  experts.shape = {24};
  refuses({"idx.npy", "[24] found"});
  experts.shape = {4, 6};
  weights = {{3, 6}, std::vector<float>(18, 0.25f)};
  refuses({"weights.npy", "[4, 6] expected", "[3, 6] found"});
  weights = {{4, 6}, std::vector<float>(24, 0.25f)};
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{8, 16}, {2, 64}, {128}, {4, 32, 1}}) {
    tokens.shape = shape;
    refuses({"tokens.npy", "[4, 32] expected", fmt::format("[{}] found", fmt::join(shape, ", "))});
  }
}

TEST_F(BadInput, NoTokensAtAllIsRefused) {
  experts = {{0, 6}, {}};
  weights = {{0, 6}, {}};
  tokens = {{0, 32}, {}};
  refuses({"idx.npy", "at least one token"});
}

TEST_F(BadInput, NpyFilesThatAreBrokenAreNamed) {
  for (const char* file : {"idx.npy", "weights.npy", "tokens.npy"}) {
    const auto whole = folder_.read(file);
    refuses_file(file, "", {"not an npy file"});
    refuses_file(file, whole.substr(0, 50), {"cut"});
    refuses_file(file, whole.substr(0, whole.size() - 1), {"bytes", "cut"});
    refuses_file(file, whole + "x", {"bytes"});
    auto fortran = whole;
    fortran.replace(fortran.find("False"), 5, "True ");
    refuses_file(file, fortran, {"Fortran order"});
    auto pickled = whole;
    pickled.replace(pickled.find("'<") + 1, 3, "|O8");
    refuses_file(file, pickled, {"pickled"});
  }
}

TEST_F(BadInput, WrongDtypeIsNamed) {
  write_npy(folder_ / "as_floats.npy", Array<float>{{4, 6}, {experts.values.begin(), experts.values.end()}});
  refuses_file("idx.npy", folder_.read("as_floats.npy"), {"int32", "<f4 found"});
  write_npy(folder_ / "as_integers.npy", Array<std::int64_t>{{4, 6}, std::vector<std::int64_t>(24)});
  refuses_file("tokens.npy", folder_.read("as_integers.npy"), {"float32", "<i8 found"});
  refuses_file("weights.npy", folder_.read("as_integers.npy"), {"float32", "<i8 found"});
}

TEST_F(BadInput, ValuesThatAreNotFiniteAreNamed) {
  tokens.values[7] = std::nanf("");
  refuses({"tokens.npy", "value 7", "finite"});
  tokens.values[7] = 0;
  weights.values[3] = HUGE_VALF;
  refuses({"weights.npy", "value 3", "finite"});
}

TEST_F(BadInput, FilesThatAreMissingOrNotBothThereAreNamed) {
  for (const char* option : {"--topk-idx", "--topk-weights", "--hidden-states"}) {
    auto arguments = run_;
    *(std::ranges::find(arguments, option) + 1) = "none.npy";
    expect_refused(arguments + kOutputs, {"none.npy", "no such file"});
  }
  expect_refused(kRun + Arguments{"--topk-idx", "idx.npy"} + kOutputs, {"--topk-idx", "--topk-weights", "together"});
  expect_refused(kRun + Arguments{"--topk-weights", "weights.npy"} + kOutputs, {"--topk-idx", "--topk-weights"});
}

class BadSchedule : public Program {
 protected:
  BadSchedule() {
    expect_done(kSimulate + kTwoRanks + Arguments{"--schedule-out", "good.json"});
    good_ = Json::parse(folder_.read("good.json"));
  }
  // Refused by whoever reads it.
  void refuses(const Json& schedule, std::vector<std::string> words, int code_of_check = 2) {
    folder_.write("bad.json", schedule.dump());
    words.push_back("bad.json");
    expect_refused({"check", "bad.json"}, words, code_of_check);
    refuses_to_run(words);
  }
  // A well-formed file whose schedule is wrong: the check ran, and failed.
  void fails_check(const Json& schedule, const std::vector<std::string>& words) { refuses(schedule, words, 1); }
  void refuses_to_run(const std::vector<std::string>& words, const Arguments& problem = kTwoRanks) {
    const Arguments with{"--schedule", "bad.json"};
    expect_refused(kRun + problem + with + kOutputs, words);
    expect_refused(kSimulate + problem + with + Arguments{"--trace", "t", "--schedule-out", "s"}, words);
  }
  // The first task of a kind in rank 0's order.
  static Json::iterator first(Json& schedule, const std::string& kind) {
    auto& tasks = schedule.at("ranks").at(0);
    return std::ranges::find_if(tasks, [&](const Json& task) { return task.at(0) == kind; });
  }

  Json good_;
};

TEST_F(BadSchedule, MissingTileIsNamed) {
  for (const char* kind : {"dispatch", "linear1", "linear2", "reduce"}) {
    auto bad = good_;
    const auto task = first(bad, kind);
    const auto name = fmt::format("{}({}, {})", kind, task->at(1).get<int>(), task->at(2).get<int>());
    bad.at("ranks").at(0).erase(task);
    fails_check(bad, {"fails the check", "tile missing: rank 0: " + name});
  }
}

TEST_F(BadSchedule, TileThatIsDoneTwiceIsNamed) {
  auto bad = good_;
  auto& tasks = bad.at("ranks").at(0);
  tasks.push_back(*first(bad, "linear1"));
  fails_check(bad, {"fails the check", "tile twice: rank 0, claim ", "linear1(0, 0)"});
}

TEST_F(BadSchedule, Linear2BeforeItsLinear1IsNamed) {
  auto bad = good_;
  std::iter_swap(first(bad, "linear1"), first(bad, "linear2"));
  fails_check(bad, {"fails the check", "wait forward: rank 0, claim ", "linear2(0, 0)", "activated[0]"});
}

TEST_F(BadSchedule, TileOutsideItsGridIsNamed) {
  auto bad = good_;
  first(bad, "linear2")->at(2) = 999;
  fails_check(bad, {"tile unknown: rank 0, claim ", "linear2(0, 999)"});
}

TEST_F(BadSchedule, CheckGivesItsFaultsAsJsonToo) {
  auto bad = good_;
  bad.at("ranks").at(0).erase(first(bad, "linear1"));
  folder_.write("bad.json", bad.dump());
  const auto outcome = run({"check", "bad.json", "--json"});
  EXPECT_EQ(outcome.code, 1);
  const auto json = Json::parse(outcome.out);
  EXPECT_EQ(json.at("valid"), false);
  EXPECT_EQ(json.at("faults").at(0).at("kind"), "tile missing");
}

TEST_F(BadSchedule, FileThatIsNoScheduleIsNamedByWhatIsWrong) {
  const auto changed = [this](const std::string& path, const Json& value) {
    auto bad = good_;
    bad[Json::json_pointer(path)] = value;
    return bad;
  };
  refuses(changed("/kind", "machine_profile"), {"\"moe_schedule\"", "\"machine_profile\""});
  refuses(changed("/schema_version", 2), {"schema_version 1 expected, 2 found"});
  refuses(changed("/ranks/0/3", {"linear9", 0, 0}), {"ranks[0][3]", "linear9", "dispatch, linear1"});
  refuses(changed("/ranks/0/3", {"linear1", 0}), {"ranks[0][3]", "[\"kind\", block, tile]"});
  refuses(changed("/ranks/0/3", {"linear1", 0, 0.5}), {"ranks[0][3]", "[\"kind\", block, tile]"});
  refuses(changed("/ranks/0/3", {"linear1", 1LL << 32, 0}), {"ranks[0][3]"});
  refuses(changed("/ranks", good_.at("ranks").at(0)), {"ranks[0]"});
  refuses(changed("/problem/hidden", "32"), {"\"hidden\"", "whole number"});
  refuses(changed("/problem/num_ranks", 0), {"ranks", "at least 1"});
  refuses(changed("/problem/rows", Json::array()), {"row counts", "128 expected"});
  refuses(changed("/problem/rows/0", -1), {"row counts", "negative"});
}

TEST_F(BadSchedule, TextThatIsNoJsonIsNamed) {
  const auto text = good_.dump();
  for (const auto& bad : {std::string(), text.substr(0, text.size() / 2), text + "]", std::string("a,b\n1,2\n")}) {
    folder_.write("bad.json", bad);
    expect_refused({"check", "bad.json"}, {"bad.json", "not valid JSON"});
    refuses_to_run({"bad.json", "not valid JSON"});
  }
  expect_refused({"check", "none.json"}, {"none.json", "no such file"});
  expect_refused(kRun + Arguments{"--schedule", "none.json"} + kOutputs, {"none.json", "no such file"});
}

TEST_F(BadSchedule, ScheduleOfAnotherProblemIsRefusedWithWhatItIsFor) {
  folder_.write("bad.json", good_.dump());
  for (const auto& other :
       {Arguments{"--ranks", "4", "--tokens-per-rank", "4"}, Arguments{"--ranks", "2", "--tokens-per-rank", "9"},
        kTwoRanks + Arguments{"--routing", "stress"}}) {
    refuses_to_run({"bad.json", "another problem", "2 ranks", "16 tokens", "--schedule-out"}, other);
  }
  expect_refused(
      Arguments{"run", "moe", "--model", "deepseek-v2-lite", "--shrink", "32", "--schedule", "bad.json"} + kTwoRanks,
      {"another problem", "hidden 32"});
}

class BadProfile : public Program {};

TEST_F(BadProfile, ProfileThatCannotBeUsedIsNamedByFileAndField) {
  const auto good = Json::parse(read_text(XSTAGE_SOURCE_DIR "/profiles/h200.json"));
  const auto refuses = [this](const std::string& text, std::vector<std::string> words) {
    words.push_back("m.json");
    folder_.write("m.json", text);
    expect_refused({"predict", "--machine", "m.json"}, words);
    expect_refused(kSimulate + Arguments{"--machine", "m.json", "--trace", "t"}, words);
    expect_refused(kRun + Arguments{"--machine", "m.json"} + kOutputs, words);
  };
  const auto text = good.dump();
  refuses(text.substr(0, text.size() / 2), {"not valid JSON"});
  auto bad = good;
  bad.erase("num_sms");
  refuses(bad.dump(), {"\"num_sms\" is missing"});
  bad = good;
  bad["ports"][3]["drain_bytes_per_ns"] = 0;
  refuses(bad.dump(), {"ports[3]", "\"drain_bytes_per_ns\"", "above 0"});
  bad = good;
  bad["kind"] = "moe_schedule";
  refuses(bad.dump(), {"\"machine_profile\"", "\"moe_schedule\""});
}

}  // namespace
}  // namespace xs::cli
