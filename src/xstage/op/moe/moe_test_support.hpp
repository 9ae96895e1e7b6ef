#pragma once

#include <gtest/gtest.h>

#include <string>

#include "xstage/core/test_support.hpp"
#include "xstage/op/moe/moe.hpp"

// For tests of the layer.

namespace xs::moe {

inline Inputs inputs_of(const MoeShape& shape, std::int64_t num_tokens, const std::string& routing,
                        std::uint64_t seed = 1) {
  return make_inputs(shape, make_routing(routing, num_tokens, shape.num_experts, shape.topk, seed), {}, seed);
}

// The tasks that a run executed are those that expand() gives from the routing alone.
inline void expect_executed(const Inputs& inputs, const RunOptions& options, const RunResult& result) {
  const auto problem = make_problem(inputs.shape, options.tiling, options.num_ranks, inputs.routing, options.placement);
  ASSERT_EQ(result.executed.size(), static_cast<std::size_t>(options.num_ranks));
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    EXPECT_EQ(result.executed[static_cast<std::size_t>(rank)], expand(options.order, problem.counts(rank)))
        << "rank " << rank << " of " << options.num_ranks;
  }
}

}  // namespace xs::moe
