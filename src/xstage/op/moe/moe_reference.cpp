#include <algorithm>
#include <cmath>

#include "xstage/core/units.hpp"
#include "xstage/op/moe/moe.hpp"

namespace xs::moe {
namespace {

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

}  // namespace

float swiglu(float gate, float up, float clamp) {
  gate = std::min(gate, clamp);
  return gate / (1.0f + std::exp(-gate)) * std::clamp(up, -clamp, clamp);
}

Reference reference(const Inputs& inputs, std::int64_t token) {
  const MoeShape& shape = inputs.shape;
  std::vector<float> wide_token, wide_weights;  // where the inputs are no fp32
  const auto x = inputs.token(token).floats(wide_token);
  std::vector<Sum> activation(static_cast<std::size_t>(shape.intermediate));
  Reference out{std::vector<double>(x.size()), std::vector<double>(x.size())};
  for (int slot = 0; slot < shape.num_slots(); ++slot) {
    const auto expert = inputs.expert_at(token, slot);
    if (expert < 0) continue;
    for (std::int64_t row = 0; row < shape.intermediate; ++row) {
      Sum gate = dot(inputs.gate(expert).part(row * shape.hidden, shape.hidden).floats(wide_weights), x);
      Sum up = dot(inputs.up(expert).part(row * shape.hidden, shape.hidden).floats(wide_weights), x);
      const double clamp = inputs.clamp;
      gate.value = std::min(gate.value, clamp);
      up.value = std::clamp(up.value, -clamp, clamp);
      const double silu = gate.value / (1 + std::exp(-gate.value));
      // An error of the gate reaches the product through silu's slope, at most 1.1.
      activation[static_cast<std::size_t>(row)] = {
          silu * up.value, 1.1 * gate.magnitude * std::abs(up.value) + std::abs(silu) * up.magnitude};
    }
    const double weight = inputs.weight_at(token, slot);
    const auto down = inputs.down_of(expert).floats(wide_weights);
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

namespace {

// So many tokens apart that the reference of those compared takes no more than `max_flops`.
std::int64_t compared_stride(const Inputs& inputs, double max_flops) {
  const MoeShape& shape = inputs.shape;
  const double flops_per_token =
      6.0 * shape.num_slots() * static_cast<double>(shape.hidden) * static_cast<double>(shape.intermediate);
  const auto affordable = std::max<std::int64_t>(2, static_cast<std::int64_t>(max_flops / flops_per_token));
  return std::max<std::int64_t>(1, ceil_div(inputs.num_tokens(), affordable));
}

}  // namespace

RelativeError relative_error(const Inputs& inputs, std::span<const float> output, double max_flops,
                             const std::function<void(double)>& progress) {
  const auto stride = compared_stride(inputs, max_flops);
  RelativeError result;
  double difference = 0, norm = 0;
  for (std::int64_t token = 0; token < inputs.num_tokens(); token += stride) {
    const auto expected = reference(inputs, token).value;
    const auto found = output.subspan(static_cast<std::size_t>(token * inputs.shape.hidden), expected.size());
    for (std::size_t h = 0; h < found.size(); ++h) {
      difference += (found[h] - expected[h]) * (found[h] - expected[h]);
      norm += expected[h] * expected[h];
    }
    ++result.num_tokens;
    if (progress) progress(static_cast<double>(token) / static_cast<double>(inputs.num_tokens()));
  }
  result.value = std::sqrt(norm > 0 ? difference / norm : difference);
  return result;
}

Verification verify(const Inputs& inputs, std::span<const float> output, double max_flops,
                    const std::function<void(double)>& progress) {
  const MoeShape& shape = inputs.shape;
  const auto stride = compared_stride(inputs, max_flops);
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
