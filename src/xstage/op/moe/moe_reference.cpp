#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "xstage/core/error.hpp"
#include "xstage/core/random.hpp"
#include "xstage/op/moe/moe.hpp"

namespace xs::moe {
namespace {

enum Stream : std::uint64_t { kHidden = 11, kGateUp, kDown };

std::span<const float> part(const std::vector<float>& values, std::int64_t index, std::int64_t size) {
  return std::span(values).subspan(static_cast<std::size_t>(index * size), static_cast<std::size_t>(size));
}

// Uniform with variance 1 / fan_in, so that activations keep their scale.
std::vector<float> random_values(std::uint64_t seed, Stream stream, std::size_t count, std::int64_t fan_in) {
  const RandomKey key{seed, stream};
  const double scale = std::sqrt(3.0 / static_cast<double>(fan_in));
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>((2 * key.uniform(i) - 1) * scale);
  return values;
}

struct Sum {
  double value = 0;
  double magnitude = 0;
  void add(double term, double term_magnitude) { value += term, magnitude += term_magnitude; }
};

Sum dot(std::span<const float> a, std::span<const float> b) {
  Sum sum;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double term = static_cast<double>(a[i]) * b[i];
    sum.add(term, std::abs(term));
  }
  return sum;
}

void require_memory(const MoeShape& shape, std::int64_t num_tokens) {
  const double weights =
      3.0 * shape.num_experts * static_cast<double>(shape.hidden) * static_cast<double>(shape.intermediate);
  // A token's row stands in the input, in the output and, top-k times, as dispatched row and as combine slot.
  const double tokens = static_cast<double>(num_tokens) * static_cast<double>(shape.hidden) * (2 + 2.0 * shape.topk);
  const double needed = sizeof(float) * (weights + tokens);
  const double present = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (needed > 0.8 * present) {
    fail(ErrorKind::unavailable,
         "this layer needs {:.1f} GiB as fp32 on CPU ranks, the machine has {:.1f}; use a larger --shrink or fewer "
         "tokens",
         needed / 0x1p30, present / 0x1p30);
  }
}

}  // namespace

std::span<const float> Inputs::token(std::int64_t index) const { return part(hidden_states, index, shape.hidden); }
std::span<const float> Inputs::gate(std::int32_t expert) const {
  return part(gate_up, 2 * std::int64_t{expert}, shape.intermediate * shape.hidden);
}
std::span<const float> Inputs::up(std::int32_t expert) const {
  return part(gate_up, 2 * std::int64_t{expert} + 1, shape.intermediate * shape.hidden);
}
std::span<const float> Inputs::down_of(std::int32_t expert) const {
  return part(down, expert, shape.hidden * shape.intermediate);
}

Inputs make_inputs(const MoeShape& shape, Routing routing, std::vector<float> hidden_states, std::uint64_t seed) {
  require_memory(shape, routing.num_tokens);
  const auto hidden = static_cast<std::size_t>(shape.hidden);
  const auto matrix = hidden * static_cast<std::size_t>(shape.intermediate);
  const auto experts = static_cast<std::size_t>(shape.num_experts);
  const auto tokens = static_cast<std::size_t>(routing.num_tokens);
  if (hidden_states.empty()) hidden_states = random_values(seed, kHidden, tokens * hidden, 3);
  require(hidden_states.size() == tokens * hidden, "hidden states: {} values expected ({} tokens x {}), {} found",
          tokens * hidden, tokens, hidden, hidden_states.size());
  return {shape, std::move(routing), std::move(hidden_states),
          random_values(seed, kGateUp, 2 * experts * matrix, shape.hidden),
          random_values(seed, kDown, experts * matrix, shape.intermediate)};
}

float swiglu(float gate, float up) { return gate / (1.0f + std::exp(-gate)) * up; }

Reference reference(const Inputs& inputs, std::int64_t token) {
  const MoeShape& shape = inputs.shape;
  const auto x = inputs.token(token);
  std::vector<Sum> activation(static_cast<std::size_t>(shape.intermediate));
  Reference out{std::vector<double>(x.size()), std::vector<double>(x.size())};
  for (int slot = 0; slot < shape.topk; ++slot) {
    const auto expert = inputs.routing.expert_at(token, slot);
    if (expert < 0) continue;
    for (std::size_t i = 0; i < activation.size(); ++i) {
      const Sum gate = dot(inputs.gate(expert).subspan(i * x.size(), x.size()), x);
      const Sum up = dot(inputs.up(expert).subspan(i * x.size(), x.size()), x);
      const double silu = gate.value / (1 + std::exp(-gate.value));
      // An error of the gate reaches the product through silu's slope, at most 1.1.
      activation[i] = {silu * up.value, 1.1 * gate.magnitude * std::abs(up.value) + std::abs(silu) * up.magnitude};
    }
    const double weight = inputs.routing.weight[static_cast<std::size_t>(token * shape.topk + slot)];
    const auto down = inputs.down_of(expert);
    for (std::size_t h = 0; h < x.size(); ++h) {
      Sum sum;
      for (std::size_t i = 0; i < activation.size(); ++i) {
        const double factor = down[h * activation.size() + i];
        sum.add(factor * activation[i].value, std::abs(factor) * activation[i].magnitude);
      }
      out.value[h] += weight * sum.value;
      out.magnitude[h] += std::abs(weight) * sum.magnitude;
    }
  }
  return out;
}

Verification verify(const Inputs& inputs, std::span<const float> output, double max_flops,
                    const std::function<void(double)>& progress) {
  const MoeShape& shape = inputs.shape;
  const double flops_per_token =
      6.0 * shape.topk * static_cast<double>(shape.hidden) * static_cast<double>(shape.intermediate);
  const auto affordable = std::max<std::int64_t>(2, static_cast<std::int64_t>(max_flops / flops_per_token));
  const auto stride = std::max<std::int64_t>(1, ceil_div(inputs.num_tokens(), affordable));
  Verification result;
  for (std::int64_t token = 0; token < inputs.num_tokens(); token += stride) {
    const auto expected = reference(inputs, token);
    const auto found = output.subspan(static_cast<std::size_t>(token * shape.hidden), expected.value.size());
    double difference = 0, magnitude = 0;
    for (std::size_t h = 0; h < found.size(); ++h) {
      difference += (found[h] - expected.value[h]) * (found[h] - expected.value[h]);
      magnitude += expected.magnitude[h] * expected.magnitude[h];
    }
    // A token without experts is exactly zero; a NaN is infinitely wrong.
    const double error = std::sqrt(magnitude > 0 ? difference / magnitude : difference);
    result.max_error = std::max(result.max_error, std::isnan(error) ? HUGE_VAL : error);
    ++result.num_tokens;
    if (progress) progress(static_cast<double>(token) / static_cast<double>(inputs.num_tokens()));
  }
  return result;
}

}  // namespace xs::moe
