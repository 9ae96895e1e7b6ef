#include "xstage/probe/probe.hpp"

#include "xstage/core/test_support.hpp"
#include "xstage/model/fit.hpp"

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

}  // namespace
}  // namespace xs
