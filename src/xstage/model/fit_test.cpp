#include "xstage/model/fit.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "xstage/core/test_support.hpp"

namespace xs {
namespace {

constexpr GigaHertz kClock{1.98};

struct Truth {
  int workers;
  double overhead, free_issue, drain, capacity, latency;

  PortParams params() const {
    return {"st16", "nvlink", workers, {overhead}, {free_issue}, {drain}, {capacity}, {latency}};
  }
};

// What a probe would measure on this port: the model's own prediction, up to 1 % off.
PortSamples measure(const Truth& truth, const std::vector<double>& bytes, const std::vector<double>& gaps) {
  PortSamples samples{"st16", "nvlink", truth.workers, 0, {}};
  Dice dice(7);
  for (const auto await : {Completion::issued, Completion::remote_visible}) {
    for (const double burst : bytes) {
      for (const double gap : gaps) {
        const BurstPattern pattern{truth.workers, {burst}, {gap}, 32, await};
        const auto exact = predict(truth.params(), kClock, pattern);
        const bool waits = await == Completion::remote_visible;
        samples.patterns.push_back({pattern, exact.mean_issue * dice.between(0.99, 1.01),
                                    waits ? exact.visible_after_last * kClock : Cycles{0}});
      }
    }
  }
  return samples;
}

TEST(Fit, RecoversTheParametersThatMadeTheSamples) {
  const std::vector<double> bytes{1024, 4096, 16384, 32768, 65536, 131072, 262144}, gaps{0, 2000, 8000, 32000};
  for (const Truth& truth : {Truth{132, 60, 20, 380, 4e6, 1400}, Truth{16, 100, 20.5, 420, 1.4e6, 1500},
                             Truth{8, 40, 21, 58, 1.5e6, 1000}, Truth{132, 150, 44, 395, 8e6, 1800}}) {
    SCOPED_TRACE(fmt::format("{} workers, drain {}", truth.workers, truth.drain));
    const auto port = fit_port(measure(truth, bytes, gaps), kClock);
    EXPECT_TRUE(port.saturated);
    EXPECT_LT(port.mean_abs_rel_error, 0.01);
    EXPECT_EQ(port.num_patterns, 56);
    const auto& found = port.params;
    EXPECT_EQ(found.path, "st16");
    EXPECT_EQ(found.dst, "nvlink");
    EXPECT_EQ(found.workers, truth.workers);
    EXPECT_NEAR(found.drain.value, truth.drain, 0.02 * truth.drain);
    EXPECT_NEAR(found.capacity.value, truth.capacity, 0.04 * truth.capacity);
    EXPECT_NEAR(found.free_issue.value, truth.free_issue, 0.02 * truth.free_issue);
    EXPECT_NEAR(found.burst_overhead.value, truth.overhead, 0.05 * truth.overhead + 2);
    // What little was outstanding drains before the latency begins.
    EXPECT_GE(found.visible_latency.value, truth.latency);
    EXPECT_LT(found.visible_latency.value, 1.3 * truth.latency);
  }
}

TEST(Fit, PortThatNeverFillsGivesLowerBounds) {
  const Truth truth{4, 60, 20, 380, 4e6, 1400};  // four workers at 40 bytes/ns cannot fill this link
  const auto port = fit_port(measure(truth, {1024, 4096, 16384, 65536}, {0, 8000}), kClock);
  EXPECT_FALSE(port.saturated);
  EXPECT_LT(port.params.drain.value, truth.drain);
  EXPECT_LE(port.params.drain.value, 4 * 20 * 1.98 * 1.01);
  EXPECT_GT(port.params.drain.value, 4 * 20 * 1.98 * 0.8);  // what these patterns pushed through
  EXPECT_EQ(port.params.capacity, Bytes{4 * 65536});
  EXPECT_NEAR(port.params.free_issue.value, truth.free_issue, 0.02 * truth.free_issue);
  EXPECT_LT(port.mean_abs_rel_error, 0.01);
}

TEST(Fit, IsTheSameEveryTime) {
  const auto samples = measure({132, 60, 20, 380, 4e6, 1400}, {4096, 65536, 262144}, {0, 8000});
  const auto first = fit_port(samples, kClock), second = fit_port(samples, kClock);
  EXPECT_EQ(first.params.drain, second.params.drain);
  EXPECT_EQ(first.params.capacity, second.params.capacity);
  EXPECT_EQ(first.params.burst_overhead, second.params.burst_overhead);
  EXPECT_EQ(first.mean_abs_rel_error, second.mean_abs_rel_error);
}

TEST(Fit, ErrorIsTheMeanOfTheRelativeOnes) {
  const Truth truth{8, 100, 20, 58, 1.5e6, 1000};
  auto samples = measure(truth, {65536}, {0, 8000});
  ASSERT_EQ(samples.patterns.size(), 4u);
  const double off[] = {0.8, 1.0, 1.25, 2.0};  // measured = predicted times this
  for (std::size_t i = 0; i < 4; ++i) {
    samples.patterns[i].mean_issue = predict(truth.params(), kClock, samples.patterns[i].pattern).mean_issue * off[i];
  }
  EXPECT_NEAR(mean_abs_rel_error(truth.params(), kClock, samples.patterns), (0.25 + 0 + 0.2 + 0.5) / 4, 1e-12);
}

// The measurements of an H200 that come with the sources.
class FitH200 : public testing::Test {
 protected:
  static FittedPort fit(const std::string& dst, int workers) {
    static const Samples samples = read_samples(XSTAGE_SOURCE_DIR "/data/h200_burst_gap.csv");
    const auto found = std::ranges::find_if(samples.ports, [&](const PortSamples& port) {
      return port.path == "st16" && port.dst == dst && port.workers == workers;
    });
    check(found != samples.ports.end(), "no st16 to {} of {} workers", dst, workers);
    return fit_port(*found, samples.sm_clock);
  }
};

TEST_F(FitH200, PlainFormTellsTheIssueTimeWithinItsKnownError) {
  struct Bound {
    const char* dst;
    int workers;
    double error;
  };
  for (const auto& bound :
       {Bound{"nvlink", 4, 0.03}, Bound{"nvlink", 8, 0.03}, Bound{"nvlink", 16, 0.03}, Bound{"nvlink", 33, 0.08},
        Bound{"nvlink", 66, 0.16}, Bound{"nvlink", 132, 0.16}, Bound{"host", 4, 0.04}, Bound{"host", 132, 0.08}}) {
    const auto port = fit(bound.dst, bound.workers);
    EXPECT_LE(port.mean_abs_rel_error, bound.error) << bound.dst << ", " << bound.workers << " SMs";
    EXPECT_EQ(port.num_patterns, 52);
  }
}

TEST_F(FitH200, DrainIsThatOfTheLink) {
  for (const int workers : {66, 132}) {
    const auto port = fit("nvlink", workers);
    EXPECT_TRUE(port.saturated);
    EXPECT_GE(port.params.drain.value, 360);
    EXPECT_LE(port.params.drain.value, 400);
  }
  const auto host = fit("host", 132);
  EXPECT_TRUE(host.saturated);
  EXPECT_NEAR(host.params.drain.value, 53, 5);
}

TEST_F(FitH200, FewSmsCannotFillTheLinkAndTheFitSaysSo) {
  const auto port = fit("nvlink", 8);
  EXPECT_FALSE(port.saturated);
  EXPECT_LT(port.params.drain.value, 360);
}

}  // namespace
}  // namespace xs
