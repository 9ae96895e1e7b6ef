#include "xstage/op/moe/moe_gpu.hpp"

#include "xstage/core/error.hpp"

namespace xs::moe {

void require_gpu_shape(const MoeShape& shape) {
  constexpr int kUnit = 8;  // bf16 elements of 16 bytes, which loads and stores move at once
  require(shape.hidden % kUnit == 0 && shape.intermediate % kUnit == 0,
          "hidden {} and intermediate {}: the GPU's kernel needs multiples of {}; pad the weights with zeros",
          shape.hidden, shape.intermediate, kUnit);
}

}  // namespace xs::moe
