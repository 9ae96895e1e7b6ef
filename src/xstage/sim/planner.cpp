#include "xstage/sim/planner.hpp"

#include <algorithm>
#include <cctype>

#include "xstage/core/error.hpp"
#include "xstage/plan/measured_rank.hpp"

namespace xs {
namespace {

constexpr double kWorthwhile = 1.02;
constexpr std::size_t kFinalists = 3;

std::vector<Order> candidates(const MoeProblem& problem, int workers) {
  const Order by_heuristic{OrderKind::wave, default_experts_per_wave(problem, workers)};
  std::vector<Order> orders{by_heuristic, {OrderKind::serial}, {OrderKind::alternate, workers}};
  const auto blocks = problem.max_blocks();
  for (const std::int32_t parts : {2, 4, 8}) {
    if (parts < blocks) orders.push_back({OrderKind::waves, parts});
  }
  for (std::int32_t lag = 1; lag < blocks && lag <= 64; lag *= 2) orders.push_back({OrderKind::lag, lag});
  return orders;
}

class Planner {
 public:
  Planner(const MoeProblem& problem, const MoeBytes& bytes, const PlanTarget& target,
          const std::function<void(double)>& progress)
      : problem_(problem),
        bytes_(bytes),
        target_(target),
        slow_(target.machine),
        fast_(target.machine),
        progress_(progress) {
    slow_.port = at_interval_end(target.machine.port, target.intervals, false);
    fast_.port = at_interval_end(target.machine.port, target.intervals, true);
    options_.workers_per_rank = target.workers;
    options_.tiles_in_flight = target.tiles_in_flight;
    options_.record_spans = false;
  }

  MoePlan run() {
    MoePlan plan;
    const auto orders = candidates(problem_, target_.workers);
    num_predictions_ = orders.size() + 2 * kFinalists;
    for (const Order& order : orders) plan.orders.push_back(predict(order, Claim::counter));
    const PlannedOrder baseline = plan.orders.front();
    sort(plan);
    for (std::size_t i = 0; i < kFinalists; ++i) {
      const Order fast = plan.orders[i].order;
      plan.orders.push_back(predict(fast, Claim::fixed));
      plan.orders.push_back(predict({fast.kind, fast.n, Rotation::own_last}, Claim::counter));
    }
    sort(plan);
    const auto is_baseline = [&](const PlannedOrder& planned) {
      return planned.order == baseline.order && planned.claim == baseline.claim;
    };
    plan.baseline = static_cast<std::size_t>(std::ranges::find_if(plan.orders, is_baseline) - plan.orders.begin());
    judge(plan, baseline);
    return plan;
  }

 private:
  static void sort(MoePlan& plan) { std::ranges::stable_sort(plan.orders, {}, &PlannedOrder::predicted); }

  PlannedOrder predict(const Order& order, Claim claim) {
    const auto one = target_.measured_rank;
    const auto schedule =
        one ? measured_rank(problem_, *one, order, RowsTo::owners, bytes_) : problem_.schedule(order, bytes_);
    options_.claim = claim;
    const auto timeline = simulate(schedule, target_.machine, options_);
    const auto shares = one ? breakdown_by_rank(timeline)[static_cast<std::size_t>(*one)] : breakdown(timeline);
    PlannedOrder planned{order, claim, timeline.makespan, timeline.makespan, timeline.makespan, shares};
    if (!target_.intervals.empty()) {
      planned.slow = simulate(schedule, slow_, options_).makespan;
      planned.fast = simulate(schedule, fast_, options_).makespan;
    }
    if (progress_) progress_(static_cast<double>(++num_done_) / static_cast<double>(num_predictions_));
    return planned;
  }

  void judge(MoePlan& plan, const PlannedOrder& baseline) const {
    const auto& choice = plan.orders[0];
    for (const auto& other : plan.orders) {
      plan.regret = std::max({plan.regret, choice.slow / other.slow - 1, choice.fast / other.fast - 1});
    }
    const double least_gain = std::min({plan.gain(), baseline.slow / choice.slow, baseline.fast / choice.fast});
    const auto& machine = target_.machine;
    const double flops_per_ns = machine.rate.value * target_.workers * machine.sm_clock.value;
    plan.rho = rho(problem_.shape(), problem_.num_ranks(), bytes_.combine, flops_per_ns, machine.port.drain.value);
    plan.gain_expected = plan.rho > 1 && least_gain >= kWorthwhile;
  }

  const MoeProblem& problem_;
  MoeBytes bytes_;
  const PlanTarget& target_;
  SimMachine slow_, fast_;
  SimOptions options_;
  const std::function<void(double)>& progress_;
  std::size_t num_done_ = 0, num_predictions_ = 0;
};

}  // namespace

MoePlan plan_moe(const MoeProblem& problem, const MoeBytes& bytes, const PlanTarget& target,
                 const std::function<void(double)>& progress) {
  return Planner(problem, bytes, target, progress).run();
}

PortParams at_interval_end(const PortParams& port, std::span<const FittedParameter> intervals, bool high) {
  PortParams moved = port;
  for (const auto& parameter : intervals) {
    const double end = high ? parameter.high : parameter.low;
    if (!parameter.identified || end <= 0) continue;
    const double factor = end / parameter.value;
    if (parameter.name == "drain_bytes_per_ns") moved.drain = port.drain * factor;
    if (parameter.name == "capacity_bytes") moved.capacity = port.capacity * factor;
    if (parameter.name == "worker_capacity_bytes") moved.worker_capacity = port.worker_capacity * factor;
  }
  return moved;
}

std::string profile_of_gpu(std::string_view gpu, const std::string& dst) {
  for (const auto& name : embedded_machines()) {
    const auto machine = load_machine(name);
    // An H200 is no H20.
    const bool same_chip =
        gpu.starts_with(machine.chip) &&
        (gpu.size() == machine.chip.size() || std::isalnum(static_cast<unsigned char>(gpu[machine.chip.size()])) == 0);
    if (same_chip &&
        std::ranges::any_of(machine.ports, [&](const FittedPort& port) { return port.params.dst == dst; })) {
      return name;
    }
  }
  return "";
}

}  // namespace xs
