#include "xstage/bench/moe_bench.hpp"

#include <algorithm>
#include <cmath>

#include "xstage/op/moe/moe_gpu.hpp"
#include "xstage/plan/measured_rank.hpp"
#include "xstage/sim/planner.hpp"
#include "xstage/sim/sim_machine.hpp"

namespace xs::bench {
namespace {

constexpr int kRank = 0;  // that is measured: routing is balanced, and all are alike

class SimulatedRank : public RankTimer {
 public:
  SimulatedRank(const MoeProblem& problem, const SimMachine& machine, int workers)
      : problem_(problem), machine_(machine) {
    options_.workers_per_rank = workers;
    options_.tiles_in_flight = 2;
    options_.record_spans = false;
  }
  Nanos time(const Order& order, Claim claim, RowsTo rows_to) override { return run(order, claim, rows_to).makespan; }
  RunShares shares(const Order& order, Claim claim, RowsTo rows_to) override {
    const auto all = breakdown_by_rank(run(order, claim, rows_to))[kRank];
    const auto share = [&](SpanKind kind) { return all.share[static_cast<std::size_t>(kind)]; };
    return {"",
            share(SpanKind::compute),
            share(SpanKind::operand_stall),
            share(SpanKind::sender_stall),
            0,
            share(SpanKind::dependency) + all.tail};
  }
  bool is_exact() const override { return true; }

 private:
  Timeline run(const Order& order, Claim claim, RowsTo rows_to) {
    options_.claim = claim;
    return simulate(measured_rank(problem_, kRank, order, rows_to), machine_, options_);
  }
  const MoeProblem& problem_;
  SimMachine machine_;
  SimOptions options_;
};

class GpuRank : public RankTimer {
 public:
  GpuRank(const MoeProblem& problem, const Routing& routing, const moe::GpuRunOptions& options)
      : rank_(problem, routing, kRank, options) {}
  Nanos time(const Order& order, Claim claim, RowsTo rows_to) override { return rank_.time(order, claim, rows_to); }
  RunShares shares(const Order& order, Claim claim, RowsTo rows_to) override {
    const auto all = moe::worker_shares(rank_.tasks(order, claim, rows_to), rank_.num_workers());
    return {"", all.linear1 + all.linear2, all.operand_stall, all.sender_stall, all.reduce, all.rest};
  }

 private:
  moe::MeasuredGpuRank rank_;
};

struct Series {
  TimedRun run;
  std::vector<Nanos> times = {};
};

// Runs take turns, so that a clock that drifts is the same for all.
void time_in_turns(RankTimer& timer, std::vector<Series>& series) {
  constexpr double kEnough = 20e6;  // ns of each run
  constexpr int kFewest = 5, kMost = 51;
  double longest = 0;
  for (auto& one : series) {  // warms up
    longest = std::max(longest, timer.time(one.run.order, one.run.claim, one.run.rows_to).value);
  }
  const int repeats =
      timer.is_exact() ? 1 : static_cast<int>(std::clamp<double>(std::ceil(kEnough / longest), kFewest, kMost));
  for (int i = 0; i < repeats; ++i) {
    for (auto& one : series) one.times.push_back(timer.time(one.run.order, one.run.claim, one.run.rows_to));
  }
  for (auto& one : series) {
    std::ranges::sort(one.times, {}, &Nanos::value);
    one.run.median = one.times[one.times.size() / 2];
    one.run.least = one.times.front();
    one.run.most = one.times.back();
    one.run.repeats = repeats;
  }
}

std::vector<FittedParameter> intervals_of(const Machine& machine, const std::string& dst) {
  for (const auto& port : machine.ports) {
    if (port.params.path == "st16" && port.params.dst == dst) return port.parameters;
  }
  return {};
}

// Paced senders are a slower link with less room, which nobody overruns.
SimMachine paced(SimMachine machine, double part) {
  if (part <= 0) return machine;
  machine.port.drain = machine.port.drain * part;
  machine.port.capacity = machine.port.capacity * part;
  return machine;
}

}  // namespace

MakeTimer simulated_ranks(const Machine& machine, const std::string& dst, double pace) {
  return [=](const MoeProblem& problem, const Routing&, int workers) {
    return std::make_unique<SimulatedRank>(problem, paced(moe_kernel_machine(machine, dst, workers), pace), workers);
  };
}

BucketRates pace_of(const Machine& machine, const std::string& dst, double part) {
  const auto port = machine.port("st16", dst);
  return {{}, port.drain * part, port.capacity * part};
}

MakeTimer gpu_ranks(int device, GpuPlace receive, const BucketRates& pace) {
  return [=](const MoeProblem& problem, const Routing& routing, int workers) {
    moe::GpuRunOptions options;
    options.pace = pace;
    options.device = device;
    options.sms_per_rank = workers;
    options.receive = receive;
    return std::make_unique<GpuRank>(problem, routing, options);
  };
}

MoeRecord MoeBench::run(const MoeCase& one) const {
  const auto& shape = one.model.shape;
  const int sms = workers > 0 ? workers : workers_of(one, receive, machine.num_sms);
  const auto routing = make_routing("balanced", one.tokens_per_rank * kMoeRanks, shape.num_experts, shape.topk, seed);
  const auto problem = moe::make_gpu_problem(shape, kMoeRanks, routing);
  const auto sim = paced(moe_kernel_machine(machine, dst, sms), pace);
  const PlanTarget target{sim, intervals_of(machine, dst), sms, 2, kRank};
  const auto plan = plan_moe(problem, {}, target);

  MoeRecord record{};
  record.model = one.model.name;
  record.tokens_per_rank = one.tokens_per_rank;
  record.workers = sms;
  record.rho = plan.rho;
  record.gain_expected = plan.gain_expected;
  record.bytes_to_peers = bytes_to_peers(problem, kRank);
  record.drain = machine.port("st16", dst).drain.value;
  record.baseline = plan.baseline;

  std::vector<Series> series;
  for (const auto& planned : plan.orders) {
    series.push_back({{planned.order, planned.claim, RowsTo::owners, planned.predicted, {}, {}, {}, 0}});
  }
  const auto& choice = plan.orders.front();
  const auto& baseline = plan.orders[plan.baseline];
  const auto control = [&](const Order& order, Claim claim, RowsTo rows_to) {
    series.push_back({{order, claim, rows_to, {}, {}, {}, {}, 0}});
  };
  control(choice.order, choice.claim, RowsTo::own);
  control(baseline.order, baseline.claim, RowsTo::own);
  control({OrderKind::serial}, Claim::counter, RowsTo::own);
  control(choice.order, choice.claim, RowsTo::nowhere);

  const auto timer = make_timer(problem, routing, sms);
  time_in_turns(*timer, series);
  for (const auto& [run, times] : series) {
    (run.rows_to == RowsTo::owners ? record.runs
     : run.rows_to == RowsTo::own  ? record.local
                                   : record.bare)
        .push_back(run);
  }
  const auto look = [&](const char* what, const PlannedOrder& planned, RowsTo rows_to) {
    record.shares.push_back(timer->shares(planned.order, planned.claim, rows_to));
    record.shares.back().what = what;
  };
  look("choice", choice, RowsTo::owners);
  look("baseline", baseline, RowsTo::owners);
  look("choice, rows to own memory", choice, RowsTo::own);
  return record;
}

}  // namespace xs::bench
