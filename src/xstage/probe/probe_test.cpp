#include "xstage/probe/probe.hpp"

#include "xstage/core/test_support.hpp"
#include "xstage/model/fit.hpp"
#include "xstage/model/machine.hpp"

// The probe on a port that is the model itself, with noise on top: no thread, no clock.

namespace xs {
namespace {

struct Truth {
  double drain;     // bytes per ns
  double capacity;  // bytes
};

ProbeTarget noisy_port(const Truth& truth, double free_issue, double noise) {
  PortParams params;
  params.path = "put";
  params.dst = "memory";
  params.burst_overhead = {500};
  params.free_issue = {free_issue};
  params.drain = {truth.drain};
  params.capacity = {truth.capacity};
  return {"a model", params.path, params.dst, GigaHertz{1},
          [=, dice = std::make_shared<Dice>(5)](const BurstPattern& pattern) {
            const auto told = predict(params, GigaHertz{1}, pattern);
            // One-sided, as a machine disturbs; one run in eight badly.
            const double factor = 1 + (dice->whole(1, 8) == 1 ? 2 : noise) * dice->between(0, 1);
            return BurstTimes{told.mean_issue * factor, told.mean_done * factor, pattern.gap};
          }};
}

TEST(Probe, FindsDrainAndCapacityOfPortsOfAnyScale) {
  for (const auto& truth : {Truth{0.2, 1 << 20}, Truth{1, 1 << 24}, Truth{0.5, 300000}, Truth{2, 5e6}}) {
    for (const std::vector<int>& workers : {std::vector{1}, std::vector{1, 2}}) {
      SCOPED_TRACE(fmt::format("{} bytes/ns, {} bytes, {} worker counts", truth.drain, truth.capacity, workers.size()));
      const auto patterns = probe_port(noisy_port(truth, 6, 0.01), {workers});
      const auto port = fit_port(to_samples(patterns), "put", "memory", {GigaHertz{1}});
      EXPECT_TRUE(port.saturated);
      EXPECT_NEAR(port.params.drain.value, truth.drain, 0.03 * truth.drain);
      EXPECT_NEAR(port.params.capacity_of(workers.back()).value, truth.capacity, 0.03 * truth.capacity);
    }
  }
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // a fit of some seconds

// A port that workers share as SMs do: bursts of whole grains alone tell how much it holds and how unequally it serves.
TEST(Probe, FindsHowSmsShareAPort) {
  const auto machine = load_machine("h200");
  const auto truth = machine.port("st16", "host");
  ProbeTarget target{"a model", truth.path, truth.dst, machine.sm_clock,
                     [&, dice = Dice(3)](const BurstPattern& pattern) mutable {
                       EXPECT_EQ(std::fmod(pattern.bytes.value, 16), 0);
                       const auto told = predict(truth, machine.sm_clock, pattern);
                       const double factor = dice.between(0.99, 1.01);
                       return BurstTimes{told.mean_issue * factor, told.mean_done * factor, pattern.gap};
                     }};
  target.grain = Bytes{16};
  target.bursts_in_a_row = 20;
  const auto patterns = probe_port(target, {.workers = {1, 8, 33, 132}, .most_repeats = 6});
  double largest = 0;  // of the worker that never fills the port
  for (const auto& probed : patterns) {
    EXPECT_EQ(probed.pattern.bursts, probed.pattern.await == Completion::issued ? 20 : 1);
    if (probed.pattern.workers == 1) largest = std::max(largest, probed.pattern.bytes.value);
  }
  EXPECT_GE(largest, 1 << 18);
  const auto found =
      fit_port(to_samples(patterns), truth.path, truth.dst, {machine.sm_clock, machine.sm_groups}).params;
  const auto expect_near = [](double value, double expected, double error) {
    EXPECT_NEAR(value / expected, 1, error) << value << " instead of " << expected;
  };
  expect_near(found.free_issue.value, truth.free_issue.value, 0.02);
  expect_near(found.drain.value, truth.drain.value, 0.01);
  for (const int workers : {8, 132}) {
    expect_near(found.capacity_of(workers).value, truth.capacity_of(workers).value, 0.05);
  }
  expect_near(found.group_fairness, truth.group_fairness, 0.15);
  expect_near(found.disorder, truth.disorder, 0.1);
}

#endif

// As a copy engine has: the sizes are given, a copy takes its latency and then its bytes.
TEST(Probe, MeasuresThePatternsThatATargetBrings) {
  ProbeTarget target{"a model", "ce", "memory", GigaHertz{2}, [](const BurstPattern& pattern) {
                       return BurstTimes{Cycles{4000 + pattern.bytes.value / 25}, Cycles{0}, Cycles{0}};
                     }};
  for (double bytes = 4096; bytes < 1e9; bytes *= 2) target.patterns.push_back({1, Bytes{bytes}, Cycles{0}, 1});
  const auto patterns = probe_port(target, {});
  ASSERT_EQ(patterns.size(), target.patterns.size());
  const auto port = fit_port(to_samples(patterns), "ce", "memory", {target.clock});
  EXPECT_FALSE(port.saturated);
  EXPECT_NEAR(port.params.burst_overhead.value, 4000, 80);
  EXPECT_NEAR(port.params.drain.value, 50, 1);
}

}  // namespace
}  // namespace xs
