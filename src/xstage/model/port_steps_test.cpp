#include <gtest/gtest.h>

#include <cmath>

#include "xstage/model/port_drive.hpp"

// PortPool against the same fluid, integrated naively.

namespace xs {
namespace {

// The same fluid in steps of `step`, without events, classes or closed forms.
class SmallSteps {
 public:
  SmallSteps(const PortParams& params, std::vector<double> weights, const Wishes& wishes, Nanos step)
      : params_(params), weights_(std::move(weights)), wishes_(wishes), step_(step), workers_(wishes.size()) {
    for (auto& worker : workers_) begin(worker, {0});
  }

  Tolds run() {
    while (std::ranges::any_of(workers_, [](auto& worker) { return !worker.open.empty(); })) step();
    Tolds told;
    for (auto& worker : workers_) told.push_back(std::move(worker.told));
    return told;
  }

 private:
  struct Open {  // a burst of which not every byte has drained
    std::size_t index;
    Bytes issue, enter;  // left to do
    double left;         // of what is to drain: bytes, or the logarithm of a fraction
    bool entered = false;
  };
  struct Worker {
    Nanos until{0};  // waits till then, for its gap and the overhead
    Bytes held{0};   // in its own stage
    std::vector<Open> open;
    Tolds::value_type told;
  };

  void begin(Worker& worker, Nanos at) {
    const auto index = worker.told.size();
    const Bytes bytes = wishes_[static_cast<std::size_t>(&worker - workers_.data())][index].bytes;
    worker.told.push_back({at});
    worker.open.push_back({index, bytes, bytes, 0});
    worker.until = at + params_.burst_overhead / kClock;
  }

  // What each takes of `room`: by weight, and no more than it wants.
  static std::vector<Bytes> split(const std::vector<Bytes>& wants, const std::vector<double>& weights, Bytes room) {
    std::vector<Bytes> takes(wants.size());
    std::vector<bool> settled(wants.size());
    for (bool changed = true; changed;) {
      changed = false;
      Bytes left = room;
      double sum = 0;
      for (std::size_t i = 0; i < wants.size(); ++i) {
        if (settled[i]) left -= takes[i];
        if (!settled[i]) sum += weights[i];
      }
      for (std::size_t i = 0; i < wants.size(); ++i) {
        if (settled[i]) continue;
        takes[i] = left * (weights[i] / sum);
        if (takes[i] < wants[i]) continue;
        takes[i] = wants[i];
        settled[i] = changed = true;
      }
    }
    return takes;
  }

  void step() {
    const bool staged = params_.engine_capacity > Bytes{0};
    const BytesPerNano free = params_.free_issue * kClock,
                       engine = (staged ? params_.engine : params_.free_issue) * kClock;
    std::vector<Bytes> wants;
    for (auto& worker : workers_) {
      if (staged) issue(worker, min(free * step_, params_.engine_capacity - worker.held));
      Bytes ready = staged ? worker.held : Bytes{0};
      if (!staged && !worker.open.empty() && worker.until <= now_) ready = worker.open.back().issue;
      wants.push_back(min(engine * step_, ready));
    }
    const Bytes drain = params_.drain * step_;
    const Bytes capacity = params_.capacity_of(static_cast<int>(workers_.size()));
    const auto takes = split(wants, weights_, capacity - outstanding_ + drain);
    Bytes entered{0};
    for (const Bytes take : takes) entered += take;
    const Bytes drained = min(drain, outstanding_ + entered);
    const double part = outstanding_ + entered > Bytes{1e-6} ? drained / (outstanding_ + entered) : 1;
    const double passed = params_.disorder == 0 ? drained.value : -std::log1p(-std::min(part, 1 - 1e-12));
    outstanding_ = outstanding_ + entered - drained;
    now_ += step_;
    for (std::size_t w = 0; w < workers_.size(); ++w) {
      age(workers_[w], passed);
      if (!staged) issue(workers_[w], takes[w]);
      enter(workers_[w], takes[w]);
    }
  }

  void issue(Worker& worker, Bytes most) {
    if (worker.open.empty() || worker.until > now_ || worker.open.back().issue == Bytes{0}) return;
    Open& burst = worker.open.back();
    const Bytes some = min(most, burst.issue);
    worker.held += some;
    burst.issue -= some;
    if (burst.issue > Bytes{0}) return;
    worker.told[burst.index].issued = now_;
    const auto& wishes = wishes_[static_cast<std::size_t>(&worker - workers_.data())];
    if (burst.index + 1 < wishes.size()) begin(worker, now_ + wishes[burst.index].gap);
  }

  void enter(Worker& worker, Bytes some) {
    worker.held -= some;
    for (Open& burst : worker.open) {
      const Bytes part = min(some, burst.enter);
      burst.enter -= part;
      some -= part;
      if (burst.enter > Bytes{1e-6} || burst.entered) continue;
      burst.entered = true;
      worker.told[burst.index].source_free = now_;
      burst.left = params_.disorder == 0 ? outstanding_.value : params_.disorder;
    }
  }

  // Of those that have entered, some leave.
  void age(Worker& worker, double passed) {
    std::erase_if(worker.open, [&](Open& burst) {
      if (!burst.entered) return false;
      burst.left -= passed;
      if (burst.left > 1e-6) return false;
      worker.told[burst.index].remote_visible = now_ + params_.visible_latency;
      return true;
    });
  }

  const PortParams& params_;
  std::vector<double> weights_;
  const Wishes& wishes_;
  Nanos step_;
  Nanos now_{0};
  Bytes outstanding_{0};
  std::vector<Worker> workers_;
};

TEST(PortPool, WorkersOutOfStepEqualIntegrationInSmallSteps) {
  Dice dice(2);
  int stalls = 0, num_bursts = 0;
  for (int trial = 0; trial < 40; ++trial) {
    auto params = any_port(dice);
    params.groups.clear();
    params.group_fairness = 0;
    // As many classes as workers, or a multiple: then everyone has its own weight.
    const int workers = 2 << dice.whole(0, 2);
    std::vector<double> weights;
    for (int i = 0; i < workers; ++i) weights.push_back(std::exp(params.spread * (2.0 * i / (workers - 1) - 1)));
    const auto wishes = random_wishes(dice, workers, 5);
    PortPool pool(params, kClock, workers);
    const auto told = drive(pool, wishes);
    Nanos end{0};
    for (const auto& worker : told) end = max(end, worker.back().remote_visible);
    const Nanos step = end / 100000;
    const auto expected = SmallSteps(params, weights, wishes, step).run();
    for (std::size_t w = 0; w < wishes.size(); ++w) {
      ASSERT_EQ(told[w].size(), wishes[w].size());
      for (std::size_t burst = 0; burst < told[w].size(); ++burst) {
        const Told &is = told[w][burst], &naive = expected[w][burst];
        SCOPED_TRACE(fmt::format("trial {}, worker {}, burst {}, disorder {}", trial, w, burst, params.disorder));
        // A burst may begin up to a step late, and so may each one before it and beside it.
        const double near = 2e-3 * is.remote_visible.value + 40 * step.value;
        EXPECT_NEAR(is.issued.value, naive.issued.value, near);
        EXPECT_NEAR(is.source_free.value, naive.source_free.value, near);
        EXPECT_NEAR(is.remote_visible.value, naive.remote_visible.value, near);
        stalls += is.issued - is.begin > pool.free_time(wishes[w][burst].bytes) * 1.01;
        ++num_bursts;
      }
    }
  }
  EXPECT_GT(stalls, num_bursts / 4);
  EXPECT_LT(stalls, num_bursts * 3 / 4);
}

}  // namespace
}  // namespace xs
