#include "xstage/model/samples.hpp"

#include <gtest/gtest.h>

#include "xstage/core/test_support.hpp"

namespace xs {
namespace {

const std::string kFull = "path,dst,ctas,threads,bytes_per_cta,gap_cycles,completion,burst,issue_mean,done_mean\n";
const std::string kSmall = "path,dst,ctas,bytes_per_cta,gap_cycles,burst,issue_mean\n";

Samples read(const std::string& text) { return parse_samples(text, "probe.csv"); }

void expect_refused(const std::string& text, std::vector<std::string> words) {
  words.push_back("probe.csv");
  expect_usage_error([&] { read(text); }, words);
}

TEST(SamplesFile, RowsOfOnePatternBecomeOneSampleWhereverTheyStand) {
  const auto samples = read("# NVIDIA H200 x2 peer=1 sm=132 clock_khz=1980000\n" + kFull +
                            "st16,nvlink,8,256,4096,0,0,0,400,0\n"
                            "st16,host,8,256,4096,0,2,0,500,2000\n"
                            "st16,nvlink,8,256,4096,0,0,1,420,0\n"
                            "st16,host,8,256,4096,0,2,1,500,3000\n"
                            "st16,nvlink,8,256,4096,500,0,0,300,0\n");
  EXPECT_EQ(samples.num_rows, 5u);
  ASSERT_EQ(samples.ports.size(), 2u);
  const auto& host = samples.ports[0];
  EXPECT_EQ(host.dst, "host");
  ASSERT_EQ(host.patterns.size(), 1u);
  EXPECT_EQ(host.patterns[0].pattern.await, Completion::remote_visible);
  EXPECT_EQ(host.patterns[0].mean_done, Cycles{2500});
  const auto& nvlink = samples.ports[1];
  EXPECT_EQ(nvlink.path, "st16");
  EXPECT_EQ(nvlink.workers, 8);
  ASSERT_EQ(nvlink.patterns.size(), 2u);
  const auto& first = nvlink.patterns[0];
  EXPECT_EQ(first.pattern.bursts, 2);
  EXPECT_EQ(first.pattern.workers, 8);
  EXPECT_EQ(first.pattern.bytes, Bytes{4096});
  EXPECT_EQ(first.pattern.gap, Cycles{0});
  EXPECT_EQ(first.pattern.await, Completion::issued);
  EXPECT_EQ(first.mean_issue, Cycles{410});
  EXPECT_EQ(nvlink.patterns[1].pattern.gap, Cycles{500});
}

TEST(SamplesFile, PatternMeasuredTwiceIsAMeanAndNotALongerRun) {
  const auto samples = read(kSmall + "st16,host,8,4096,0,0,300\nst16,host,8,4096,0,1,500\n" +
                            "st16,host,8,4096,0,0,320\nst16,host,8,4096,0,1,520\n");
  const auto& sample = samples.ports.at(0).patterns.at(0);
  EXPECT_EQ(sample.pattern.bursts, 2);
  EXPECT_EQ(sample.mean_issue, Cycles{410});
  EXPECT_EQ(samples.ports.at(0).num_rows, 4u);
}

TEST(SamplesFile, RowMayBeTheMeanOverManyBursts) {
  const std::string header = "path,dst,ctas,bytes_per_cta,gap_cycles,bursts,issue_mean\n";
  const auto samples = read(header + "st16,host,8,4096,0,32,410\n");
  const auto& sample = samples.ports.at(0).patterns.at(0);
  EXPECT_EQ(sample.pattern.bursts, 32);
  EXPECT_EQ(sample.mean_issue, Cycles{410});
  EXPECT_EQ(samples.ports.at(0).num_rows, 1u);
  expect_refused(header + "st16,host,8,4096,0,0,410\n", {"probe.csv:2", "\"bursts\"", "0"});
}

TEST(SamplesFile, PortsAreSortedByPathDestinationAndWorkers) {
  const auto samples =
      read(kSmall + "st4,host,2,1,0,0,9\nst16,nvlink,16,1,0,0,9\nst16,nvlink,4,1,0,0,9\nst16,hbm,1,1,0,0,9\n");
  std::vector<std::string> names;
  for (const auto& port : samples.ports) names.push_back(fmt::format("{} {} {}", port.path, port.dst, port.workers));
  EXPECT_EQ(names, (std::vector<std::string>{"st16 hbm 1", "st16 nvlink 4", "st16 nvlink 16", "st4 host 2"}));
}

TEST(SamplesFile, EveryKnobOfAPatternSeparatesIt) {
  const std::string base = "st16,nvlink,8,256,4096,0,0,0,400,0\n";
  for (const char* other : {"st16,nvlink,8,128,4096,0,0,0,400,0\n", "st16,nvlink,8,256,8192,0,0,0,400,0\n",
                            "st16,nvlink,8,256,4096,1,0,0,400,0\n", "st16,nvlink,8,256,4096,0,1,0,400,0\n"}) {
    EXPECT_EQ(read(kFull + base + other).ports.at(0).patterns.size(), 2u) << other;
  }
  EXPECT_EQ(read(kFull + base + "st16,nvlink,8,256,4096,0,0,1,500,0\n").ports.at(0).patterns.size(), 1u);
}

TEST(SamplesFile, CompletionNumbersAreTheProbes) {
  const auto await = [&](const std::string& number) {
    return read(kFull + "st16,host,8,256,4096,0," + number + ",0,400,0\n").ports.at(0).patterns.at(0).pattern.await;
  };
  EXPECT_EQ(await("0"), Completion::issued);
  EXPECT_EQ(await("1"), Completion::source_free);
  EXPECT_EQ(await("2"), Completion::remote_visible);
  EXPECT_EQ(await("3"), Completion::source_free);
  expect_refused(kFull + "st16,host,8,256,4096,0,4,0,400,0\n", {"probe.csv:2", "\"completion\"", "0, 1, 2 or 3", "4"});
}

TEST(SamplesFile, FirstCommentNamesTheChipAndItsClock) {
  const std::string rows = kSmall + "st16,host,8,4096,0,0,400\n";
  const auto h200 = read("# NVIDIA H200 x2 peer=1 sm=132 clock_khz=1980000\n" + rows);
  EXPECT_EQ(h200.chip, "NVIDIA H200");
  EXPECT_EQ(h200.num_sms, 132);
  EXPECT_NEAR(h200.sm_clock.value, 1.98, 1e-12);
  const auto one = read("# NVIDIA A100-SXM4 sm=108\n" + rows);
  EXPECT_EQ(one.chip, "NVIDIA A100-SXM4");
  EXPECT_EQ(one.num_sms, 108);
  EXPECT_EQ(one.sm_clock, GigaHertz{0});
  const auto silent = read(rows);
  EXPECT_EQ(silent.chip, "");
  EXPECT_EQ(silent.num_sms, 0);
}

TEST(SamplesFile, CommentThatMakesNoSenseCountsAsUnknown) {
  for (const char* sms : {"sm=-5", "sm=x", "sm=1e300", "sm=nan", "sm="}) {
    EXPECT_EQ(read(std::string("# chip ") + sms + "\n" + kSmall + "st16,host,8,4096,0,0,400\n").num_sms, 0) << sms;
  }
}

TEST(SamplesFile, ClocksThatCannotBeAreNotTaken) {
  for (const char* clock : {"clock_khz=nan", "clock_khz=inf", "clock_khz=-1", "clock_khz=1e300", "clock_khz=x"}) {
    const auto samples = read(std::string("# chip ") + clock + "\n" + kSmall + "st16,host,8,4096,0,0,400\n");
    EXPECT_EQ(samples.sm_clock, GigaHertz{0}) << clock;
  }
}

TEST(SamplesFile, OptionalColumnsMayLack) {
  const auto samples = read(kSmall + "st16,host,8,4096,0,0,400\n");
  EXPECT_EQ(samples.ports.at(0).patterns.at(0).pattern.await, Completion::issued);
  EXPECT_EQ(samples.ports.at(0).patterns.at(0).mean_done, Cycles{0});
}

TEST(SamplesFile, MissingColumnIsNamed) {
  for (const std::string column : {"path", "dst", "ctas", "bytes_per_cta", "gap_cycles", "burst", "issue_mean"}) {
    auto text = kSmall + "st16,host,8,4096,0,0,400\n";
    text.replace(text.find(column), column.size(), "other");
    expect_refused(text, {"\"" + column + "\" is missing"});
  }
}

TEST(SamplesFile, BadCellIsNamedByLineAndColumn) {
  const std::string good = "st16,host,8,4096,0,0,400\n";
  const auto refuses = [&](const std::string& row, const std::string& column, const std::string& found) {
    expect_refused(kSmall + good + row + "\n", {"probe.csv:3", "\"" + column + "\"", found});
  };
  refuses("st16,host,0,4096,0,0,400", "ctas", "0");
  refuses("st16,host,4294967304,4096,0,0,400", "ctas", "4294967304");
  refuses("st16,host,8,0,0,0,400", "bytes_per_cta", "0");
  refuses("st16,host,8,40.5,0,0,400", "bytes_per_cta", "40.5");
  refuses("st16,host,8,4096,-1,0,400", "gap_cycles", "-1");
  refuses("st16,host,8,4096,0,-1,400", "burst", "-1");
  refuses("st16,host,8,4096,0,0,nan", "issue_mean", "nan");
  refuses("st16,host,8,4096,0,0,1e308", "issue_mean", "1e+308");
  refuses("st16,host,8,4096,1e308,0,400", "gap_cycles", "1e+308");
  refuses("st16,host,8,4096,0,0,", "issue_mean", "\"\"");
  expect_refused(kSmall + good + "st16,host,8\n", {"probe.csv:3", "7 cells", "found 3"});
}

TEST(SamplesFile, PatternThatTookNoTimeIsAnError) {
  expect_refused(kSmall + "st16,host,8,4096,0,0,0\n", {"st16", "host", "8 workers", "4096 bytes", "0"});
}

TEST(SamplesFile, TheMeasurementsOfTheSourcesAreWhole) {
  const auto samples = read_samples(XSTAGE_SOURCE_DIR "/data/h200_burst_gap.csv");
  EXPECT_EQ(samples.chip, "NVIDIA H200");
  EXPECT_EQ(samples.num_rows, 32512u);
  EXPECT_EQ(samples.ports.size(), 32u);
  for (const auto& port : samples.ports) {
    for (const auto& sample : port.patterns) EXPECT_EQ(sample.pattern.bursts, 32);
  }
}

}  // namespace
}  // namespace xs
