#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "xstage/plan/moe_problem.hpp"
#include "xstage/sim/simulate.hpp"

// Which order a layer should run in on a machine, what that gains, and what it costs if the model is wrong.

namespace xs {

struct PlannedOrder {
  Order order;
  Claim claim;
  Nanos predicted;
  Nanos slow, fast;  // with the port as bad and as good as its fit's interval allows
  Breakdown breakdown;
};

struct MoePlan {
  double rho = 0;                    // rho() of the layer on this machine
  std::vector<PlannedOrder> orders;  // by rising predicted time; orders[0] is the choice
  std::size_t baseline = 0;          // expert waves at their heuristic's size, counter claims
  // The most that the choice loses against the best of these orders if the port is at an end of its interval.
  double regret = 0;
  bool gain_expected = false;

  double gain() const { return orders[baseline].predicted / orders[0].predicted; }
};

// Simulates every order with its parameters on `workers` SMs of each rank: serial, expert waves, even waves, alternate,
// lags of 1, 2, 4, … blocks, natural and own rows last; counter claims for all and static ones for the fastest.
//
// A gain is expected if back-to-back Linear-2 tiles outrun the link (rho > 1) and the choice beats the baseline by 2 %
// wherever the port lies within its interval.
MoePlan plan_moe(const MoeProblem& problem, const MoeBytes& bytes, const SimMachine& machine,
                 std::span<const FittedParameter> intervals, int workers,
                 const std::function<void(double done)>& progress = {});

// The port at the low or the high end of the intervals of its drain and capacities.
PortParams at_interval_end(const PortParams& port, std::span<const FittedParameter> intervals, bool high);

}  // namespace xs
