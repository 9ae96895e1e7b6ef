#pragma once

#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "xstage/op/host_run.hpp"
#include "xstage/op/host_tensor.hpp"
#include "xstage/op/moe/moe_workspace.hpp"
#include "xstage/plan/moe_problem.hpp"

// The mixture-of-experts layer: dispatch, Linear-1 with SwiGLU, Linear-2, combine.
//
//   out[t] = sum over slots s of weight[t, s] * down[e] (silu(gate[e] x[t]) * (up[e] x[t])),   e = expert[t, s]
//
// Behind the top-k slots of the routing stands one for every shared expert, with weight 1. moe_reference.cpp says it
// without tiles and ranks, moe_host.cpp runs a schedule of it on CPU ranks.

namespace xs::moe {

// Everything over all ranks; a rank reads its own tokens and its own experts' weights only. All of one data type,
// row-major; shared experts stand behind the routed ones.
struct Inputs {
  MoeShape shape;
  Routing routing;
  Tensor hidden_states;  // [num_tokens, hidden]
  Tensor gate_up;        // [all experts, 2, intermediate, hidden]: gate, then up
  Tensor down;           // [all experts, hidden, intermediate]
  // Of SwiGLU, as some models have it: gate at most this, up within +- this.
  float clamp = std::numeric_limits<float>::infinity();

  std::int64_t num_tokens() const { return routing.num_tokens; }
  DType dtype() const { return hidden_states.dtype(); }
  // Of shape.num_slots() slots.
  std::int32_t expert_at(std::int64_t token, int slot) const;
  float weight_at(std::int64_t token, int slot) const;
  TensorView token(std::int64_t index) const;
  TensorView gate(std::int32_t expert) const;
  TensorView up(std::int32_t expert) const;
  TensorView down_of(std::int32_t expert) const;
};

// Random weights and, where `hidden_states` is empty, random tokens; both depend on `seed` alone, not on ranks. What
// `dtype` cannot hold is rounded. Throws Error(unavailable) when the memory is not there.
Inputs make_inputs(const MoeShape& shape, Routing routing, const std::vector<float>& hidden_states, std::uint64_t seed,
                   DType dtype = DType::fp32);

// Throws Error(usage) that names the place of an expert that does not exist or a value that is not finite.
void require_usable(const Inputs& inputs);

// The layer's output for one token, accumulated in double, and by how much rounding may move it: the same sums over
// the magnitudes of their terms. Where terms cancel, only that measures an error fairly.
struct Reference {
  std::vector<double> value;      // [hidden]
  std::vector<double> magnitude;  // [hidden]
};
Reference reference(const Inputs& inputs, std::int64_t token);

struct RunOptions {
  int num_ranks = 1;
  MoePlacement placement;  // what it leaves open lies evenly
  Order order;
  std::vector<std::vector<Task>> tasks;  // [rank]; an explicit order, instead of `order` when not empty
  MoeTiling tiling;
  std::int64_t capacity_rows = 0;  // that a rank may receive; 0: as many as this routing brings
  HostRunOptions host;
};

struct RunResult {
  std::vector<float> output;                // [num_tokens, hidden]
  std::vector<std::vector<Task>> executed;  // [rank], by claim index
  Timeline timeline;                        // wall clock of the last repeat
  std::size_t workspace_bytes = 0;          // of every rank
};

// Executes the layer on CPU ranks (threads). Inputs, capacity and schedule are checked before anything runs.
RunResult run_on_host(const Inputs& inputs, const RunOptions& options);

// One rank's part, for a world of the caller's: the rank's tokens go to `output`, and the caller closes the epoch. All
// ranks call it with the same usable inputs and the same options. Layers may run at the same time, each in a workspace
// and with signals (workspace.num_flags of them) of its own. Throws on every rank, before a row is sent, if the
// workspace is too small.
RankLog run_rank(const Inputs& inputs, const RunOptions& options, Rank rank, const Workspace& workspace,
                 Signals& signals, std::span<float> output);

// silu(gate) * up, both clamped before.
float swiglu(float gate, float up, float clamp);

// How far the output is from the reference, over the tokens that were compared.
struct Verification {
  std::int64_t num_tokens = 0;
  double max_error = 0;            // of the worst token: |output - value| / |magnitude|, L2 norms over hidden
  double tolerance = 4 * 0x1p-24;  // rounding of fp32 sums grows with their magnitude, not beyond
  bool passed() const { return max_error <= tolerance; }
};

// ||output - reference|| / ||reference|| over all tokens, or over as many evenly spaced ones as `max_flops` of
// reference allow: for sums of rounded products, which the bound above does not tell. Not a number where one is found.
struct RelativeError {
  std::int64_t num_tokens = 0;
  double value = 0;
};
RelativeError relative_error(const Inputs& inputs, std::span<const float> output, double max_flops = 2e10,
                             const std::function<void(double done)>& progress = {});

// Compares all tokens, or as many evenly spaced ones as `max_flops` of reference allow.
Verification verify(const Inputs& inputs, std::span<const float> output, double max_flops = 2e10,
                    const std::function<void(double done)>& progress = {});

}  // namespace xs::moe
