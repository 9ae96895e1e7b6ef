#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "xstage/cli/program.hpp"
#include "xstage/model/fit.hpp"

// fit, predict and list, as far as a person can see.

namespace xs::cli {
namespace {

const std::string kH200Csv = XSTAGE_SOURCE_DIR "/data/h200_burst_gap.csv";
const std::string kHeader = "path,dst,ctas,bytes_per_cta,gap_cycles,burst,issue_mean\n";

class MeasureCommand : public Program {
 protected:
  // The rows of one port, two worker counts and two bursts: a whole fit takes its time.
  void write_few_ports() const {
    std::istringstream all(read_text(kH200Csv));
    std::string few;
    for (std::string line; std::getline(all, line);) {
      const bool workers =
          line.find(",st16,nvlink,8,") != std::string::npos || line.find(",st16,nvlink,66,") != std::string::npos;
      const bool burst = line.find(",16384,") != std::string::npos || line.find(",131072,") != std::string::npos;
      if ((workers && burst) || line.starts_with('#') || line.starts_with("set,")) few += line + "\n";
    }
    folder_.write("few.csv", few);
  }
};

TEST_F(MeasureCommand, FitWritesAProfileThatOthersRead) {
  write_few_ports();
  const auto printed = expect_json({"fit", "few.csv", "-o", "profile.json"});
  EXPECT_EQ(Json::parse(folder_.read("profile.json")), printed);
  EXPECT_EQ(printed.at("kind"), "machine_profile");
  EXPECT_EQ(printed.at("chip"), "NVIDIA H200");
  EXPECT_EQ(printed.at("sm_groups").size(), 132u);
  ASSERT_EQ(printed.at("ports").size(), 1u);
  const auto& port = printed.at("ports").at(0);
  EXPECT_EQ(port.at("saturated"), true);
  EXPECT_LT(port.at("mean_abs_rel_error").get<double>(), 0.05);
  EXPECT_GE(port.at("intervals").size(), 8u);

  const auto errors = expect_json({"predict", "--machine", "profile.json", "--samples", "few.csv"});
  ASSERT_EQ(errors.at("ports").size(), 2u);
  double sum = 0, patterns = 0;
  for (const auto& of_workers : errors.at("ports")) {
    const double count = of_workers.at("patterns");
    EXPECT_EQ(of_workers.at("rows"), 32 * count);
    sum += count * of_workers.at("mean_abs_rel_error").get<double>();
    patterns += count;
  }
  EXPECT_EQ(port.at("patterns"), patterns);
  EXPECT_NEAR(port.at("mean_abs_rel_error").get<double>(), sum / patterns, 1e-9);
  EXPECT_EQ(expect_json(kSimulate + Arguments{"--machine", "profile.json"}).at("machine"), "h200");
}

TEST_F(MeasureCommand, FitSaysInWordsWhatItFound) {
  write_few_ports();
  const auto out = expect_done({"fit", "few.csv"});
  for (const char* word : {"NVIDIA H200 at 1.98 GHz", "st16 to nvlink", "95 % interval", "lower bound",
                           "=> Measured: SMs of NVIDIA H200", "drains "}) {
    EXPECT_NE(out.find(word), std::string::npos) << out << "lacks " << word;
  }
  EXPECT_EQ(folder_.names(), std::vector<std::string>{"few.csv"});
}

TEST_F(MeasureCommand, HoldOutTellsWhatFitsHaveNotSeen) {
  write_few_ports();
  const auto json = expect_json({"fit", "few.csv", "--hold-out", "2"});
  EXPECT_EQ(json.at("kind"), "held_out_error");
  EXPECT_EQ(json.at("folds"), 2);
  const auto& port = json.at("ports").at(0);
  EXPECT_EQ(port.at("held_out_by_workers").size(), 2u);
  EXPECT_TRUE(port.at("left_out_by_workers").empty());  // 8 and 66 are the outer ones
  EXPECT_GT(port.at("held_out_error").get<double>(), 0);
  EXPECT_LT(port.at("held_out_error").get<double>(), 0.15);
  EXPECT_EQ(port.at("onset").at("count").get<std::size_t>() + port.at("recovery").at("count").get<std::size_t>(),
            port.at("crossings").size());
  expect_refused({"fit", "few.csv", "--hold-out", "1"}, {"--hold-out"});
}

TEST_F(MeasureCommand, HoldOutSaysInWordsHowFarItWas) {
  std::string rows;
  for (const int workers : {1, 2, 4}) {
    for (const int bytes : {1024, 4096, 8192, 16384}) {
      rows += fmt::format("st16,nvlink,{},{},0,0,{}\n", workers, bytes, bytes / 20 + 50);
    }
  }
  folder_.write("few.csv", "# Some Chip sm=10 clock_khz=1500000\n" + kHeader + rows);
  const auto out = expect_done({"fit", "few.csv", "--hold-out", "2"});
  for (const char* word : {"st16 to nvlink", "held out", "1:", "2:", "4:", "0/0", "median / mean"}) {
    EXPECT_NE(out.find(word), std::string::npos) << out << "lacks " << word;
  }
}

TEST_F(MeasureCommand, FitOfAnUnknownChipKnowsWhatItsSamplesSay) {
  std::string rows;
  for (int burst = 0; burst < 2; ++burst) {
    for (const int bytes : {1024, 4096, 16384})
      rows += fmt::format("st16,nvlink,4,{},0,{},{}\n", bytes, burst, bytes / 20 + 50);
  }
  folder_.write("new.csv", "# Some Chip sm=10 clock_khz=1500000\n" + kHeader + rows);
  const auto json = expect_json({"fit", "new.csv", "-o", "new.json"});
  EXPECT_EQ(json.at("chip"), "Some Chip");
  EXPECT_EQ(json.at("num_sms"), 10);
  EXPECT_EQ(json.at("sm_clock_ghz"), 1.5);
  expect_json({"predict", "--machine", "new.json", "--workers", "4"});
  expect_refused(kSimulate + Arguments{"--machine", "new.json"}, {"no compute rate", "bf16", "none"});

  folder_.write("nameless.csv", kHeader + rows);
  expect_refused({"fit", "nameless.csv", "-o", "p.json"}, {"nameless.csv", "first line", "clock_khz", "--machine"});
  EXPECT_EQ(expect_json({"fit", "nameless.csv", "--machine", "h200"}).at("chip"), "NVIDIA H200");
  expect_refused({"fit", "new.csv", "--machine", "h200", "-o", "p.json"}, {"Some Chip", "h200", "NVIDIA H200"});
}

TEST_F(MeasureCommand, SamplesThatCannotBeReadAreNamed) {
  const std::string good = kHeader + "st16,nvlink,132,4096,0,0,400\n";
  const auto refuses = [this](const std::string& text, std::vector<std::string> words) {
    words.push_back("bad.csv");
    folder_.write("bad.csv", text);
    expect_refused({"fit", "bad.csv", "-o", "profile.json"}, words);
    expect_refused({"predict", "--samples", "bad.csv"}, words);
  };
  refuses("", {"header", "empty"});
  refuses(kHeader, {"rows"});
  refuses(good + "st16,nvlink,132\n", {"bad.csv:3", "7 cells", "found 3"});
  refuses(good + "st16,nvlink,132,4096,0,0,nan\n", {"bad.csv:3", "\"issue_mean\"", "nan"});
  refuses(good + "st16,nvlink,many,4096,0,0,400\n", {"bad.csv:3", "\"ctas\"", "many"});
  refuses("path,dst,ctas\nst16,nvlink,132\n", {"\"bytes_per_cta\" is missing", "path, dst, ctas"});
  refuses("\x93NUMPY", {"rows below the header"});
  expect_refused({"fit", "none.csv"}, {"none.csv", "no such file"});
  expect_refused({"predict", "--samples", "none.csv"}, {"none.csv", "no such file"});
  expect_refused({"fit", "."}, {"found a folder"});
  folder_.write("good.csv", good);
  expect_refused({"fit", "good.csv", "-o", "none/p.json", "--machine", "h200"}, {"none/p.json", "does not exist"});
}

TEST_F(MeasureCommand, PredictionIsTheModels) {
  const auto json =
      expect_json({"predict", "--workers", "132", "--bytes", "65536", "--gap-cycles", "1000", "--bursts", "16"});
  const auto machine = load_machine("h200");
  const auto port = machine.port("st16", "nvlink");
  const auto expected = predict(port, machine.sm_clock, {132, {65536}, {1000}, 16, Completion::issued});
  EXPECT_EQ(json.at("free_issue_cycles"), expected.free.value);
  EXPECT_EQ(json.at("mean_issue_cycles"), expected.mean_issue.value);
  EXPECT_EQ(json.at("last_issue_cycles"), expected.last_issue.value);
  EXPECT_EQ(json.at("remote_visible_after_last_ns"), expected.visible_after_last.value);
}

TEST_F(MeasureCommand, OnsetAndRecoveryAreWhereStallsBeginAndEnd) {
  const auto predicted = [this](double bytes, double gap) {
    return expect_json({"predict", "--bytes", fmt::format("{}", bytes), "--gap-cycles", fmt::format("{}", gap)});
  };
  const auto over_free = [&](double bytes, double gap) {
    const auto json = predicted(bytes, gap);
    return json.at("mean_issue_cycles").get<double>() / json.at("free_issue_cycles").get<double>();
  };
  const auto json = predicted(8192, 0);
  const double recovery = json.at("recovery_gap_cycles"), onset = json.at("onset_bytes");
  EXPECT_GT(over_free(8192, 0), 2);
  EXPECT_LE(over_free(8192, recovery), 1.1);
  EXPECT_GT(over_free(8192, 0.9 * recovery), 1.1);
  EXPECT_NEAR(over_free(onset, 0), 1.1, 0.01);
  EXPECT_LT(over_free(0.9 * onset, 0), 1.1);
}

TEST_F(MeasureCommand, PredictOfMoreSmsThanTheChipHasIsRefused) {
  expect_json({"predict", "--workers", "132"});
  expect_refused({"predict", "--workers", "133"}, {"--workers 133", "h200", "132 SMs"});
}

TEST_F(MeasureCommand, PredictSaysInWordsWhetherTheLinkKeepsUp) {
  const auto out = expect_done({"predict"});
  for (const char* word : {"=> The link does not keep up", "onset: with this gap bursts from ",
                           "recovery: 65536 bytes stall after any gap"}) {
    EXPECT_NE(out.find(word), std::string::npos) << out << "lacks " << word;
  }
  EXPECT_NE(expect_done({"predict", "--workers", "1"}).find("no burst up to 1 GiB stalls"), std::string::npos);
  EXPECT_NE(expect_done({"predict", "--bytes", "8192"}).find("8192 bytes do not stall after gaps of "),
            std::string::npos);
  EXPECT_NE(expect_done({"predict", "--bytes", "8192", "--gap-cycles", "1e6"}).find("=> The link keeps up"),
            std::string::npos);
}

TEST_F(MeasureCommand, ListsNameWhatOtherCommandsTake) {
  const auto first_name = [this](const std::string& what) {
    const auto list = expect_json({"list", what}).at(what);
    EXPECT_FALSE(list.empty());
    const auto text = expect_done({"list", what});
    EXPECT_EQ(std::ranges::count(text, '\n'), 1 + static_cast<std::ptrdiff_t>(list.size()));
    for (const auto& entry : list) {
      EXPECT_NE(text.find("  " + entry.at("name").get<std::string>() + " "), std::string::npos) << text;
    }
    return list.at(0).at("name").get<std::string>();
  };
  expect_done(kSimulate + Arguments{"--routing", first_name("routings"), "--schedule", first_name("schedules"),
                                    "--machine", first_name("machines")});
  expect_done({"simulate", "moe", "--shrink", "64", "--ranks", "2", "--model", first_name("models")});
}

}  // namespace
}  // namespace xs::cli
