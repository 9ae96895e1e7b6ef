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
  for (const char* word : {"bytes each", "stalled", "given", "fitted", "=> "}) {
    EXPECT_NE(out.find(word), std::string::npos) << out << "lacks " << word;
  }
}

TEST_F(ProbeCommand, RefusesWhatItCannotDo) {
  expect_refused({"probe", "--backend", "cuda", "-o", "s.csv"}, {"--backend cuda", "cpu"}, 3);
  expect_refused({"probe", "--backend", "tpu"}, {"--backend tpu", "expected cpu or cuda"});
  expect_refused({"probe", "--drain-gbs", "0"}, {"--drain-gbs", "a number from"});
  expect_refused({"probe", "--workers", "0"}, {"--workers"});
  expect_refused(kProbe + Arguments{"-o", "none/s.csv"}, {"none/s.csv", "does not exist"});
}

}  // namespace
}  // namespace xs::cli
