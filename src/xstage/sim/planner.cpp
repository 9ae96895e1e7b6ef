#include "xstage/sim/planner.hpp"

#include <algorithm>

#include "xstage/core/error.hpp"

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
  Planner(const MoeProblem& problem, const MoeBytes& bytes, const SimMachine& machine,
          std::span<const FittedParameter> intervals, int workers, const std::function<void(double)>& progress)
      : problem_(problem), bytes_(bytes), machine_(machine), slow_(machine), fast_(machine), progress_(progress) {
    slow_.port = at_interval_end(machine.port, intervals, false);
    fast_.port = at_interval_end(machine.port, intervals, true);
    options_.workers_per_rank = workers;
    options_.record_spans = false;
  }

  MoePlan run() {
    MoePlan plan;
    const auto orders = candidates(problem_, options_.workers_per_rank);
    total_ = orders.size() + kFinalists * 2 + (kFinalists + 1) * 2;
    for (const Order& order : orders) plan.orders.push_back(predict(order, Claim::counter));
    const PlannedOrder baseline = plan.orders.front();
    sort(plan);
    // What the fastest orders gain from own rows last and from static claims is tried on them alone.
    const auto fastest = plan.orders;
    for (std::size_t i = 0; i < std::min(kFinalists, fastest.size()); ++i) {
      plan.orders.push_back(predict(fastest[i].order, Claim::fixed));
      Order own_last = fastest[i].order;
      own_last.rotation = Rotation::own_last;
      plan.orders.push_back(predict(own_last, Claim::counter));
    }
    sort(plan);
    plan.baseline = index_of(plan, baseline);
    judge(plan);
    return plan;
  }

 private:
  PlannedOrder predict(const Order& order, Claim claim) {
    const auto timeline = simulate_with(order, claim, machine_);
    return {order, claim, timeline.makespan, timeline.makespan, timeline.makespan, breakdown(timeline)};
  }

  Timeline simulate_with(const Order& order, Claim claim, const SimMachine& machine) {
    options_.claim = claim;
    auto timeline = simulate(problem_.schedule(order, bytes_), machine, options_);
    if (progress_) progress_(static_cast<double>(++done_) / static_cast<double>(total_));
    return timeline;
  }

  static void sort(MoePlan& plan) { std::ranges::stable_sort(plan.orders, {}, &PlannedOrder::predicted); }

  static std::size_t index_of(const MoePlan& plan, const PlannedOrder& wanted) {
    const auto found = std::ranges::find_if(plan.orders, [&](const PlannedOrder& planned) {
      return planned.order == wanted.order && planned.claim == wanted.claim;
    });
    return static_cast<std::size_t>(found - plan.orders.begin());
  }

  void judge(MoePlan& plan) {
    std::vector<std::size_t> judged;
    for (std::size_t i = 0; i < std::min(kFinalists, plan.orders.size()); ++i) judged.push_back(i);
    if (plan.baseline >= judged.size()) judged.push_back(plan.baseline);
    for (const std::size_t i : judged) {
      auto& planned = plan.orders[i];
      planned.slow = simulate_with(planned.order, planned.claim, slow_).makespan;
      planned.fast = simulate_with(planned.order, planned.claim, fast_).makespan;
    }
    const auto& choice = plan.orders[0];
    const auto& baseline = plan.orders[plan.baseline];
    for (const std::size_t i : judged) {
      plan.regret =
          std::max({plan.regret, choice.slow / plan.orders[i].slow - 1, choice.fast / plan.orders[i].fast - 1});
    }
    const double least = std::min({plan.gain(), baseline.slow / choice.slow, baseline.fast / choice.fast});
    const double flops_per_ns = machine_.rate.value * options_.workers_per_rank * machine_.sm_clock.value;
    plan.rho = rho(problem_.shape(), problem_.num_ranks(), bytes_.combine, flops_per_ns, machine_.port.drain.value);
    plan.gain_expected = plan.rho > 1 && least >= kWorthwhile;
  }

  const MoeProblem& problem_;
  MoeBytes bytes_;
  SimMachine machine_, slow_, fast_;
  SimOptions options_;
  const std::function<void(double)>& progress_;
  std::size_t done_ = 0, total_ = 1;
};

}  // namespace

PortParams at_interval_end(const PortParams& port, std::span<const FittedParameter> intervals, bool high) {
  PortParams moved = port;
  for (const auto& parameter : intervals) {
    if (!parameter.identified) continue;
    const double factor = (high ? parameter.high : parameter.low) / parameter.value;
    if (parameter.name == "drain_bytes_per_ns") moved.drain = port.drain * factor;
    if (parameter.name == "capacity_bytes") moved.capacity = port.capacity * factor;
    if (parameter.name == "worker_capacity_bytes") moved.worker_capacity = port.worker_capacity * factor;
  }
  return moved;
}

MoePlan plan_moe(const MoeProblem& problem, const MoeBytes& bytes, const SimMachine& machine,
                 std::span<const FittedParameter> intervals, int workers, const std::function<void(double)>& progress) {
  return Planner(problem, bytes, machine, intervals, workers, progress).run();
}

}  // namespace xs
