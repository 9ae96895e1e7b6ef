#include <gtest/gtest.h>

#include <ctime>

#include "xstage/core/test_support.hpp"
#include "xstage/plan/moe_problem.hpp"
#include "xstage/sim/simulate.hpp"

// How fast full-size layers simulate. In CPU time, since others may use the same cores.

namespace xs {
namespace {

struct Layer {
  Schedule schedule;
  std::size_t num_tasks = 0;
  double remote_bytes = 0;  // from rank 0
};

Layer deepseek_v3(int num_ranks, std::int64_t tokens_per_rank) {
  const auto shape = find_moe_model("deepseek-v3").shape;
  const auto routing = make_routing("balanced", num_ranks * tokens_per_rank, shape.num_experts, shape.topk, 1);
  Layer layer{make_problem(shape, {}, num_ranks, routing).schedule({OrderKind::wave, 8})};
  for (const auto& rank : layer.schedule.ranks) layer.num_tasks += rank.tasks.size();
  const auto& sends = layer.schedule.ranks[0].sends;
  for (std::size_t claim = 0; claim < sends.size(); ++claim) {
    for (const auto& send : sends[claim]) layer.remote_bytes += send.rank == 0 ? 0 : static_cast<double>(send.bytes);
  }
  return layer;
}

// Tasks per second of one core.
double rate_of(const Layer& layer, const SimMachine& machine, int workers, const std::string& what) {
  SimOptions options;
  options.workers_per_rank = workers;
  options.claim = Claim::counter;
  options.record_spans = false;
  options.tiles_in_flight = 2;
  const auto begin = std::clock();
  const auto timeline = simulate(layer.schedule, machine, options);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  const double rate = static_cast<double>(layer.num_tasks) / seconds;
  fmt::print("{}: {} tasks in {:.2f} s, {:.2f} million a second\n", what, layer.num_tasks, seconds, rate * 1e-6);
  const double drained = layer.remote_bytes / machine.port.drain.value;
  EXPECT_NEAR(timeline.link_busy[0].value, drained, 1e-6 * drained);
  EXPECT_GT(timeline.makespan.value, drained);
  return rate;
}

// Builds for a sanitizer only have to finish.
void expect_rate([[maybe_unused]] double rate, [[maybe_unused]] double least) {
#ifdef NDEBUG
  EXPECT_GE(rate, least);
#endif
}

class SimulateSpeed : public testing::Test {
 protected:
  const Machine machine_ = load_machine("h200");
  const SimMachine coupled_ = sim_machine(machine_, "bf16", "st16", "nvlink", machine_.num_sms);
};

TEST_F(SimulateSpeed, MillionTasksASecondOnAPlainPort) {
  SimMachine plain = coupled_;
  plain.port.spread = plain.port.group_fairness = plain.port.disorder = 0;
  expect_rate(rate_of(deepseek_v3(8, 8192), plain, machine_.num_sms, "plain port, 8 ranks"), 500e3);
}

TEST_F(SimulateSpeed, TwoHundredThousandTasksASecondWithCoupledWorkers) {
  expect_rate(rate_of(deepseek_v3(8, 8192), coupled_, machine_.num_sms, "coupled workers, 8 ranks"), 200e3);
}

}  // namespace
}  // namespace xs
