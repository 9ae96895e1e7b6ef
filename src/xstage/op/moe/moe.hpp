#pragma once

#include <functional>
#include <span>
#include <vector>

#include "xstage/op/host_run.hpp"
#include "xstage/plan/moe_problem.hpp"

// The mixture-of-experts layer: dispatch, Linear-1 with SwiGLU, Linear-2, combine.
//
//   out[t] = sum over slots s of weight[t, s] * down[e] (silu(gate[e] x[t]) * (up[e] x[t])),   e = expert[t, s]
//
// moe_reference.cpp says it without tiles and ranks, moe_host.cpp runs a schedule of it on CPU ranks.

namespace xs::moe {

// Everything over all ranks; a rank reads its own tokens and its own experts' weights only. fp32, row-major.
struct Inputs {
  MoeShape shape;
  Routing routing;
  std::vector<float> hidden_states;  // [num_tokens, hidden]
  std::vector<float> gate_up;        // [num_experts, 2, intermediate, hidden]: gate, then up
  std::vector<float> down;           // [num_experts, hidden, intermediate]

  std::int64_t num_tokens() const { return routing.num_tokens; }
  std::span<const float> token(std::int64_t index) const;
  std::span<const float> gate(std::int32_t expert) const;
  std::span<const float> up(std::int32_t expert) const;
  std::span<const float> down_of(std::int32_t expert) const;
};

// Random weights and, where `hidden_states` is empty, random tokens; both depend on `seed` alone, not on ranks. Throws
// Error(unavailable) when the memory is not there.
Inputs make_inputs(const MoeShape& shape, Routing routing, std::vector<float> hidden_states, std::uint64_t seed);

// The layer's output for one token, accumulated in double, and by how much rounding may move it: the same sums over
// the magnitudes of their terms. Where terms cancel, only that measures an error fairly.
struct Reference {
  std::vector<double> value;      // [hidden]
  std::vector<double> magnitude;  // [hidden]
};
Reference reference(const Inputs& inputs, std::int64_t token);

struct RunOptions {
  int num_ranks = 1;
  Order order;
  std::vector<std::vector<Task>> tasks;  // [rank]; an explicit order, instead of `order` when not empty
  MoeTiling tiling;
  HostRunOptions host;
};

struct RunResult {
  std::vector<float> output;                // [num_tokens, hidden]
  std::vector<std::vector<Task>> executed;  // [rank], by claim index
  Timeline timeline;                        // wall clock of the last repeat
};

// Executes the layer on CPU ranks (threads). The schedule is checked before anything runs.
RunResult run_on_host(const Inputs& inputs, const RunOptions& options);

// silu(gate) * up
float swiglu(float gate, float up);

// How far the output is from the reference, over the tokens that were compared.
struct Verification {
  std::int64_t num_tokens = 0;
  double max_error = 0;            // of the worst token: |output - value| / |magnitude|, L2 norms over hidden
  double tolerance = 4 * 0x1p-24;  // rounding of fp32 sums grows with their magnitude, not beyond
  bool passed() const { return max_error <= tolerance; }
};

// Compares all tokens, or as many evenly spaced ones as `max_flops` of reference allow.
Verification verify(const Inputs& inputs, std::span<const float> output, double max_flops = 2e10,
                    const std::function<void(double done)>& progress = {});

}  // namespace xs::moe
