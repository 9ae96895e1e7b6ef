#include "xstage/op/host_tensor.hpp"

#include <bit>
#include <cmath>
#include <cstring>

#include "xstage/core/error.hpp"

namespace xs {
namespace {

// bf16 is the upper half of an fp32.
std::uint16_t rounded(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40);  // stays NaN
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace

std::string to_string(DType dtype) { return dtype == DType::fp32 ? "fp32" : "bf16"; }

DType parse_dtype(const std::string& text) {
  if (text == "fp32") return DType::fp32;
  if (text == "bf16") return DType::bf16;
  fail(ErrorKind::usage, "data type {}: expected fp32 or bf16", text);
}

TensorView TensorView::part(std::int64_t first, std::int64_t count) const {
  return {dtype_, bytes_.subspan(static_cast<std::size_t>(first) * size_of(dtype_),
                                 static_cast<std::size_t>(count) * size_of(dtype_))};
}

std::span<const float> TensorView::floats(std::vector<float>& buffer) const {
  const auto count = static_cast<std::size_t>(size());
  if (dtype_ == DType::fp32) return {reinterpret_cast<const float*>(bytes_.data()), count};
  buffer.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, bytes_.data() + 2 * i, 2);
    buffer[i] = std::bit_cast<float>(std::uint32_t{bits} << 16);
  }
  return buffer;
}

Tensor::Tensor(std::span<const float> values, DType dtype) : Tensor(dtype, std::ssize(values)) {
  for (std::size_t i = 0; i < values.size(); ++i) set(static_cast<std::int64_t>(i), values[i]);
}

void Tensor::set(std::int64_t index, float value) {
  auto* const to = bytes_.data() + static_cast<std::size_t>(index) * size_of(dtype_);
  if (dtype_ == DType::fp32) {
    std::memcpy(to, &value, 4);
  } else {
    const auto bits = rounded(value);
    std::memcpy(to, &bits, 2);
  }
}

}  // namespace xs
