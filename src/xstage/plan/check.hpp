#pragma once

#include <string>
#include <vector>

#include "xstage/plan/schedule.hpp"

// Proves a schedule before it runs: one scan per rank, one topological sort across ranks.
//
// Proved: every tile of every grid is done exactly once; every wait is reached by the raises that exist, and only by
// all of them (a smaller count would let a reader start before its data is complete); waits within a rank point to
// smaller claim indices; across ranks there is no cycle. A worker executes claims in order, so the sort orders every
// task behind the one claimed before it, which covers any number of workers and both ways to claim.

namespace xs {

enum class FaultKind {
  tile_missing,
  tile_twice,
  tile_unknown,  // outside the rank's grids
  flag_unknown,
  raise_empty,        // adds less than 1: a wait for the sum could end without it
  wait_never_raised,  // fewer raises than the wait asks for
  wait_too_early,     // more raises than the wait asks for
  wait_forward,       // needs a task of its own rank that is claimed later
  deadlock,           // a cycle across ranks
};

struct Fault {
  FaultKind kind;
  std::string text;  // rank, claim, task and what is wrong
};

std::string to_string(FaultKind kind);

// Empty when the schedule is right. Reports the first `most` >= 1 faults.
std::vector<Fault> check(const Schedule& schedule, std::size_t most = 10);

// Throws Error(usage) that lists the faults.
void require_valid(const Schedule& schedule, const std::string& name);

}  // namespace xs
