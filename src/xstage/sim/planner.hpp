#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "xstage/plan/moe_problem.hpp"
#include "xstage/sim/simulate.hpp"

// Which order a layer should run in on a machine, what that gains, and what it costs if the model is wrong.

namespace xs {

struct PlannedOrder {
  Order order;
  Claim claim;
  Nanos predicted;
  Nanos slow, fast;     // with the port at the bad and at the good end of its fit's interval
  Breakdown breakdown;  // of all ranks that run
};

struct MoePlan {
  double rho = 0;                    // rho() of the layer on this machine
  std::vector<PlannedOrder> orders;  // by rising predicted time; orders[0] is the choice
  std::size_t baseline = 0;          // expert waves at their heuristic's size, counter claims
  double regret = 0;                 // the most that the choice loses against the best order at an end of the interval
  bool gain_expected = false;

  double gain() const { return orders[baseline].predicted / orders[0].predicted; }
};

// Where a layer runs.
struct PlanTarget {
  SimMachine machine;
  std::vector<FittedParameter> intervals = {};  // of the machine's port; none: it is taken at its word
  int workers = 1;                              // SMs of each rank
  int tiles_in_flight = 2;
  std::optional<int> measured_rank = {};  // it alone runs, its peers only receive: measured_rank(); else all do
};

// Simulates every order with its parameters: serial, expert waves, even waves, alternate, lags of 1, 2, 4, … blocks;
// counter claims for all, static ones and own rows last for the fastest.
//
// A gain is expected if back-to-back Linear-2 tiles outrun the link (rho > 1) and the choice beats the baseline by 2 %,
// as fitted and at both ends of the interval.
MoePlan plan_moe(const MoeProblem& problem, const MoeBytes& bytes, const PlanTarget& target,
                 const std::function<void(double done)>& progress = {});

// The port at the low or the high end of the intervals of its drain and capacities. What the samples do not identify
// stays where it is.
PortParams at_interval_end(const PortParams& port, std::span<const FittedParameter> intervals, bool high);

// The known profile of the chip in a GPU's name ("NVIDIA H100 80GB HBM3") that has a port to `dst`; empty if none has.
std::string profile_of_gpu(std::string_view gpu, const std::string& dst);

}  // namespace xs
