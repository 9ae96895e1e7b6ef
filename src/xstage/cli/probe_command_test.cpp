#include <algorithm>

#include "xstage/cli/program.hpp"
#include "xstage/model/samples.hpp"

// probe from outside: what it writes and prints. How well it measures is host_target_test's concern.

namespace xs::cli {
namespace {

using ProbeCommand = Program;
const Arguments kProbe{"probe", "--drain-gbs", "0.5", "--capacity-bytes", "262144", "--workers", "1", "--repeats", "6"};

TEST_F(ProbeCommand, WritesSamplesThatFitReads) {
  const auto json = expect_json(kProbe + Arguments{"-o", "samples.csv", "--fit"});
  EXPECT_EQ(json.at("kind"), "probe");
  EXPECT_EQ(json.at("capacity_bytes"), 262144);
  EXPECT_GT(json.at("fit").at("drain_gbs").get<double>(), 0);
  const auto samples = read_samples(folder_ / "samples.csv");
  ASSERT_EQ(samples.ports.size(), 1u);
  EXPECT_EQ(samples.sm_clock, GigaHertz{1});
  EXPECT_EQ(samples.ports[0].patterns.size(), json.at("patterns").size());
  const auto fitted = expect_json({"fit", "samples.csv"});
  EXPECT_EQ(fitted.at("ports").at(0).at("path"), "put");
}

TEST_F(ProbeCommand, SaysInWordsWhatItMeasured) {
  const auto out = expect_done(kProbe + Arguments{"--fit"});
  for (const char* word : {"bytes each", "stalled", "given", "fitted", "=> ", "mean error"}) {
    EXPECT_NE(out.find(word), std::string::npos) << out << "lacks " << word;
  }
}

TEST_F(ProbeCommand, TellsTheHeldOutErrorOfPatternsEnough) {
  auto two = kProbe;
  *(std::ranges::find(two, "--workers") + 1) = "1,2";
  const auto out = expect_done(two + Arguments{"--fit"});
  EXPECT_NE(out.find("on patterns held out"), std::string::npos) << out;
}

TEST_F(ProbeCommand, RefusesWhatItCannotDo) {
  expect_refused({"probe", "--backend", "tpu"}, {"--backend tpu", "expected cpu or cuda"});
  expect_refused({"probe", "--drain-gbs", "0"}, {"--drain-gbs", "a number from"});
  expect_refused({"probe", "--workers", "0"}, {"--workers"});
  expect_refused(kProbe + Arguments{"-o", "none/s.csv"}, {"none/s.csv", "does not exist"});
}

// What an option cannot mean is said before anybody looks for a GPU.
TEST_F(ProbeCommand, RefusesWhatNoGpuCanDo) {
  const Arguments cuda{"probe", "--backend", "cuda"};
  expect_refused(cuda + Arguments{"--to", "disk"}, {"--to disk", "host, hbm or peer"});
  expect_refused(cuda + Arguments{"--path", "st8"}, {"st8", "st16, st4, bulk or tensor", "ce_wait"});
  expect_refused(cuda + Arguments{"--path", "bulk", "--copy-bytes", "3000"}, {"--copy-bytes 3000", "power of two"});
  expect_refused(cuda + Arguments{"--copy-bytes", "128"}, {"--copy-bytes", "256"});
  expect_refused(cuda + Arguments{"--all"}, {"--all", "--fit"});
  expect_refused(cuda + Arguments{"--samples", "s.csv"}, {"--samples", "--all"});
  expect_refused(cuda + Arguments{"--all", "--neighbours"}, {"--all", "--neighbours"});
  expect_refused(cuda + Arguments{"--drain-gbs", "2"}, {"--drain-gbs", "--backend cpu"});
  expect_refused(cuda + Arguments{"-o", "none/s.csv"}, {"none/s.csv", "does not exist"});
  expect_refused({"probe", "--to", "host"}, {"--to", "--backend cuda"});
  expect_refused({"probe", "--all", "--fit"}, {"--all", "--backend cuda"});
}

// Each way to use a GPU, on a machine that has one or not.
TEST_F(ProbeCommand, WithoutAGpuOneSentenceSaysSo) {
  for (const auto& what : {Arguments{"--to", "hbm", "--fit"}, Arguments{"--path", "ce", "-o", "s.csv"},
                           Arguments{"--neighbours"}, Arguments{"--all", "--fit", "-o", "p.json"}}) {
    const auto outcome = run(Arguments{"probe", "--backend", "cuda", "--device", "0", "--repeats", "6"} + what);
    if (outcome.code == 0) continue;
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_NE(outcome.err.find("CUDA"), std::string::npos) << outcome.err;
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_FALSE(std::filesystem::exists(folder_ / "s.csv") || std::filesystem::exists(folder_ / "p.json"));
  }
}

}  // namespace
}  // namespace xs::cli
