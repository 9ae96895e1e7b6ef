#include "xstage/probe/host_target.hpp"

#include "xstage/core/test_support.hpp"
#include "xstage/model/fit.hpp"

namespace xs {
namespace {

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)

// From real bytes through samples and fit back to what the port was given. A machine with other work may disturb most
// repeats of a pattern at once; so there are three attempts. One worker: where cores are few, several are not served
// alike, and the mean of their issue times is not what one queue would give.
TEST(HostTarget, ProbeAndFitRecoverDrainAndCapacity) {
  constexpr double kDrain = 0.2;
  constexpr std::size_t kCapacity = std::size_t{1} << 20;
  double drain_error = 1, capacity_error = 1;
  for (int attempt = 0; attempt < 3 && std::max(drain_error, capacity_error) > 0.05; ++attempt) {
    HostPortOptions options;
    options.drain = {kDrain};
    options.capacity = kCapacity;
    const auto target = host_target(options);
    const auto patterns = probe_port(target, {.workers = {1}, .most_repeats = 6});
    const auto port = fit_port(to_samples(patterns), target.path, target.dst, {target.clock});
    drain_error = std::abs(port.params.drain.value / kDrain - 1);
    capacity_error = std::abs(port.params.capacity_of(1).value / kCapacity - 1);
  }
  EXPECT_LE(drain_error, 0.05);
  EXPECT_LE(capacity_error, 0.05);
}

#endif

TEST(HostTarget, RunsWhatThePatternSays) {
  HostPortOptions options;
  options.drain = {0.5};
  options.capacity = 50000;
  const auto target = host_target(options);
  const auto awaited = target.run({2, Bytes{100000}, Cycles{0}, 2, Completion::remote_visible});
  EXPECT_GE((awaited.issue + awaited.done).value, 2e5);  // a burst's own bytes have drained
  EXPECT_GT(awaited.done.value, 0);
  const auto gaps = target.run({1, Bytes{1000}, Cycles{3e6}, 3, Completion::issued});
  EXPECT_GE(gaps.gap.value, 3e6);
  EXPECT_EQ(gaps.done.value, 0);
  EXPECT_LT(gaps.issue.value, 3e6);
}

}  // namespace
}  // namespace xs
