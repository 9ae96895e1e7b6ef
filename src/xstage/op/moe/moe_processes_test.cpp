#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cerrno>

#include "xstage/op/moe/moe_test_support.hpp"

// The layer where ranks are processes or bytes take their time: the same bits, and an end whatever happens.

namespace xs::moe {
namespace {

class MoeProcesses : public testing::Test {
 protected:
  MoeProcesses() {
    options_.num_ranks = 1;
    options_.order = {OrderKind::serial};
    options_.tiling = {8, 16, 16, 8};
    expected_ = run_on_host(inputs_, options_).output;
    options_.host.ranks_are = RanksAre::processes;
  }
  ~MoeProcesses() override {
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a process was left";
    EXPECT_EQ(errno, ECHILD);
  }

  static constexpr MoeShape kShape{48, 40, 12, 3};
  Inputs inputs_ = inputs_of(kShape, 60, "zipf", 3);
  RunOptions options_;
  std::vector<float> expected_;
};

TEST_F(MoeProcesses, GiveTheBitsOfThreads) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (const Order order : {Order{OrderKind::serial}, Order{OrderKind::wave, 3, Rotation::own_last},
                              Order{OrderKind::waves, 3}, Order{OrderKind::alternate, 4}, Order{OrderKind::lag, 2}}) {
      for (const auto claim : {Claim::fixed, Claim::counter}) {
        options_.num_ranks = ranks;
        options_.order = order;
        options_.host.claim = claim;
        options_.host.workers_per_rank = claim == Claim::fixed ? 1 : 2;
        const auto result = run_on_host(inputs_, options_);
        ASSERT_EQ(result.output, expected_) << ranks << " ranks, " << to_string(order);
        expect_executed(inputs_, options_, result);
      }
    }
  }
}

TEST_F(MoeProcesses, ManyLayersWithDelaysAndNearTheWrapOfEveryCounter) {
  options_.num_ranks = 4;
  options_.host.repeats = 8;
  options_.host.signals.first_epoch = 0xfffffffcu;
  options_.host.signals.first_arrival = (Word{1} << 63) - 4;
  options_.host.signals.faults.max_delay = Nanos{50e3};
  options_.host.signals.faults.late = {{}, {}, Nanos{30e6}};
  EXPECT_EQ(run_on_host(inputs_, options_).output, expected_);
}

TEST_F(MoeProcesses, CompletionsInAnyOrderThroughAFullPortChangeNothing) {
  options_.num_ranks = 4;
  options_.host.workers_per_rank = 2;
  for (const auto ranks_are : {RanksAre::threads, RanksAre::processes}) {
    options_.host.ranks_are = ranks_are;
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      options_.host.port =
          HostPortOptions{.drain = {1}, .capacity = 512, .visible_latency = {20e3}, .reorder_seed = seed};
      EXPECT_EQ(run_on_host(inputs_, options_).output, expected_) << "seed " << seed;
    }
  }
}

TEST_F(MoeProcesses, AKilledRankIsNamed) {
  options_.num_ranks = 4;
  options_.host.repeats = 3;
  for (const int step : {0, 1, 7, 40, 100}) {
    options_.host.signals.faults.kill = {2, step};
    expect_error(ErrorKind::timeout, [&] { run_on_host(inputs_, options_); },
                 {"rank 2 (process ", "signal 9", "the process of rank 2 is gone"});
  }
}

TEST_F(MoeProcesses, ALostRaiseIsNamedByItsFlag) {
  options_.num_ranks = 3;
  options_.host.signals.timeout = Nanos{1e9};
  options_.host.signals.faults.drop_raise = {1, 0};  // its row counts for rank 0
  // Whoever gives up first: rank 0, or one that waits for it and says so.
  expect_error(ErrorKind::timeout, [&] { run_on_host(inputs_, options_); }, {"rank 0 wait", "for counted[1]"});
}

}  // namespace
}  // namespace xs::moe
