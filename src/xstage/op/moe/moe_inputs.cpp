#include <unistd.h>

#include <cmath>

#include "xstage/core/error.hpp"
#include "xstage/core/random.hpp"
#include "xstage/op/moe/moe.hpp"

namespace xs::moe {
namespace {

enum Stream : std::uint64_t { kHidden = 11, kGateUp, kDown };

// Uniform with variance 1 / fan_in, so that activations keep their scale.
Tensor random_values(std::uint64_t seed, Stream stream, std::int64_t count, std::int64_t fan_in, DType dtype) {
  const RandomKey key{seed, stream};
  const double scale = std::sqrt(3.0 / static_cast<double>(fan_in));
  Tensor values(dtype, count);
  for (std::int64_t i = 0; i < count; ++i) {
    values.set(i, static_cast<float>((2 * key.uniform(static_cast<std::uint64_t>(i)) - 1) * scale));
  }
  return values;
}

void require_memory(const MoeShape& shape, std::int64_t num_tokens, DType dtype) {
  const auto element = static_cast<double>(size_of(dtype));
  const double weights =
      3.0 * shape.all_experts() * static_cast<double>(shape.hidden) * static_cast<double>(shape.intermediate);
  // A token's row stands in the input, in the output and, for every slot, as dispatched row and as combine slot.
  const double rows = static_cast<double>(num_tokens) * static_cast<double>(shape.hidden);
  const double needed =
      element * (weights + rows * (1 + shape.num_slots())) + sizeof(float) * rows * (1 + shape.num_slots());
  const double present = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (needed > 0.8 * present) {
    fail(ErrorKind::unavailable,
         "this layer needs {:.1f} GiB as {} on CPU ranks, the machine has {:.1f}; use a larger --shrink or fewer "
         "tokens",
         needed / 0x1p30, to_string(dtype), present / 0x1p30);
  }
}

// place(index) names a value.
template <class Place>
void require_finite(const Tensor& tensor, std::int64_t expected, const char* name, const Place& place) {
  require(tensor.view().size() == expected, "{}: {} values expected, {} found", name, expected, tensor.view().size());
  constexpr std::int64_t kAtOnce = 1 << 16;
  std::vector<float> buffer;
  for (std::int64_t first = 0; first < expected; first += kAtOnce) {
    const auto values = tensor.view().part(first, std::min(kAtOnce, expected - first)).floats(buffer);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isfinite(values[i])) continue;
      fail(ErrorKind::usage, "{}: {} is {}; expected finite values", name, place(first + static_cast<std::int64_t>(i)),
           values[i]);
    }
  }
}

}  // namespace

std::int32_t Inputs::expert_at(std::int64_t token, int slot) const {
  return slot < shape.topk ? routing.expert_at(token, slot) : shape.num_experts + slot - shape.topk;
}
float Inputs::weight_at(std::int64_t token, int slot) const {
  return slot < shape.topk ? routing.weight[static_cast<std::size_t>(token * shape.topk + slot)] : 1.0f;
}
TensorView Inputs::token(std::int64_t index) const {
  return hidden_states.view().part(index * shape.hidden, shape.hidden);
}
TensorView Inputs::gate(std::int32_t expert) const {
  const auto matrix = shape.intermediate * shape.hidden;
  return gate_up.view().part(2 * expert * matrix, matrix);
}
TensorView Inputs::up(std::int32_t expert) const {
  const auto matrix = shape.intermediate * shape.hidden;
  return gate_up.view().part((2 * expert + 1) * matrix, matrix);
}
TensorView Inputs::down_of(std::int32_t expert) const {
  const auto matrix = shape.hidden * shape.intermediate;
  return down.view().part(expert * matrix, matrix);
}

Inputs make_inputs(const MoeShape& shape, Routing routing, const std::vector<float>& hidden_states, std::uint64_t seed,
                   DType dtype) {
  require_memory(shape, routing.num_tokens, dtype);
  const auto matrix = shape.hidden * shape.intermediate;
  const auto num_values = routing.num_tokens * shape.hidden;
  require(hidden_states.empty() || std::ssize(hidden_states) == num_values,
          "hidden states: {} values expected ({} tokens x {}), {} found", num_values, routing.num_tokens, shape.hidden,
          hidden_states.size());
  return {shape, std::move(routing),
          hidden_states.empty() ? random_values(seed, kHidden, num_values, 3, dtype) : Tensor(hidden_states, dtype),
          random_values(seed, kGateUp, 2 * shape.all_experts() * matrix, shape.hidden, dtype),
          random_values(seed, kDown, shape.all_experts() * matrix, shape.intermediate, dtype)};
}

void require_usable(const Inputs& inputs) {
  const auto& shape = inputs.shape;
  require(inputs.routing.topk == shape.topk, "routing: top-k {} expected, {} found", shape.topk, inputs.routing.topk);
  check_routing(inputs.routing, shape.num_experts, "routing");
  require(inputs.gate_up.dtype() == inputs.hidden_states.dtype() && inputs.down.dtype() == inputs.gate_up.dtype(),
          "tokens and weights must have one data type");
  const auto matrix = shape.hidden * shape.intermediate;
  const auto expert_name = [&](std::int64_t expert) {
    return expert < shape.num_experts ? fmt::format("expert {}", expert)
                                      : fmt::format("shared expert {}", expert - shape.num_experts);
  };
  require(inputs.clamp > 0, "clamp {}: expected a number above 0, or infinity for none", inputs.clamp);
  require_finite(inputs.hidden_states, inputs.num_tokens() * shape.hidden, "hidden states", [&](std::int64_t i) {
    return fmt::format("token {}, element {}", i / shape.hidden, i % shape.hidden);
  });
  require_finite(inputs.gate_up, 2 * shape.all_experts() * matrix, "weights", [&](std::int64_t i) {
    return fmt::format("{} of {}, row {}, column {}", i / matrix % 2 == 0 ? "gate" : "up", expert_name(i / matrix / 2),
                       i % matrix / shape.hidden, i % shape.hidden);
  });
  require_finite(inputs.down, shape.all_experts() * matrix, "weights", [&](std::int64_t i) {
    return fmt::format("down of {}, row {}, column {}", expert_name(i / matrix), i % matrix / shape.intermediate,
                       i % shape.intermediate);
  });
}

}  // namespace xs::moe
