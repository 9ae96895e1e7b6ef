#pragma once

#include "xstage/plan/moe_problem.hpp"
#include "xstage/plan/rows_to.hpp"

namespace xs {

// One rank of a layer alone, as one GPU can measure it: its peers have no tasks and only receive. What they would have
// raised is there from the beginning, so a wait is for no more than the rank raises itself. (Every wait that a peer
// raises for is for all that will ever be raised.) Its own sends alone are in the time.
Schedule measured_rank(const MoeProblem& problem, int rank, const Order& order, RowsTo rows_to,
                       const MoeBytes& bytes = {});

// Bytes that it sends to peers, tokens and rows of Linear-2 tiles.
double bytes_to_peers(const MoeProblem& problem, int rank, const MoeBytes& bytes = {});

}  // namespace xs
