#include "xstage/probe/machine_probe.hpp"

#include "xstage/core/test_support.hpp"
#include "xstage/model/samples.hpp"

namespace xs {
namespace {

ProbeTarget model_port(const std::string& path, double drain) {
  PortParams params;
  params.path = path;
  params.dst = "memory";
  params.burst_overhead = {200};
  params.free_issue = {20};
  params.drain = {drain};
  params.capacity = {1e6};
  return {"a model", params.path, params.dst, GigaHertz{1}, [=](const BurstPattern& pattern) {
            const auto told = predict(params, GigaHertz{1}, pattern);
            return BurstTimes{told.mean_issue, told.mean_done, pattern.gap};
          }};
}

TEST(MachineProbe, FitsEveryPortInItsPlace) {
  Machine machine;
  machine.name = machine.chip = "a model";
  machine.num_sms = 4;
  machine.sm_clock = GigaHertz{1};
  int alive = 0;  // targets hold much memory: one at a time
  const auto made = [&](const std::string& path, double drain) {
    return [&alive, path, drain] {
      EXPECT_EQ(alive, 0);
      ++alive;
      auto target = model_port(path, drain);
      const std::shared_ptr<int> held(&alive, [](int* count) { --*count; });
      target.run = [run = target.run, held](const BurstPattern& pattern) { return run(pattern); };
      return target;
    };
  };
  double last = 0;
  const auto result =
      probe_machine(machine, {made("fast", 4), made("slow", 1), made("middle", 2)}, {.workers = {1}}, [&](double done) {
        EXPECT_GE(done, last);
        last = done;
      });
  EXPECT_EQ(last, 1);
  EXPECT_EQ(parse_samples(result.samples, "samples").ports.size(), 3u);
  const auto& probed = result.machine;
  ASSERT_EQ(probed.ports.size(), 3u);
  EXPECT_NE(probed.source.find("3 ports"), std::string::npos) << probed.source;
  const std::vector<std::pair<std::string, double>> expected{{"fast", 4}, {"slow", 1}, {"middle", 2}};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(probed.ports[i].params.path, expected[i].first);
    EXPECT_NEAR(probed.ports[i].params.drain.value / expected[i].second, 1, 0.03);
    EXPECT_NEAR(probed.ports[i].params.capacity_of(1).value / 1e6, 1, 0.03);
  }
}

TEST(FitProbed, TellsTheHeldOutErrorWhereHalfOfThePatternsShowsThePort) {
  const auto probe = [](const std::vector<int>& workers) {
    const auto target = model_port("st16", 2);
    return to_samples(probe_port(target, {.workers = workers}));
  };
  const auto few = probe({1}), many = probe({1, 2, 4});
  EXPECT_FALSE(fit_probed(few, "st16", "memory", {GigaHertz{1}}).held_out_error.has_value());
  const auto port = fit_probed(many, "st16", "memory", {GigaHertz{1}});
  EXPECT_EQ(port.num_patterns, static_cast<int>(many.size()));
  EXPECT_EQ(port.params.drain, fit_port(many, "st16", "memory", {GigaHertz{1}}).params.drain);
  ASSERT_TRUE(port.held_out_error.has_value());
  EXPECT_GT(*port.held_out_error, port.mean_abs_rel_error);
  EXPECT_LT(*port.held_out_error, 0.03);
}

}  // namespace
}  // namespace xs
