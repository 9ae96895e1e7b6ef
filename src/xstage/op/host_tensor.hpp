#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

// Values as an operator stores and sends them: fp32, or bf16 that is widened to fp32 before a product.

namespace xs {

enum class DType : std::uint8_t { fp32, bf16 };

constexpr std::size_t size_of(DType dtype) { return dtype == DType::fp32 ? 4 : 2; }
// "fp32" or "bf16".
std::string to_string(DType dtype);
DType parse_dtype(const std::string& text);

class TensorView {
 public:
  TensorView(DType dtype, std::span<const std::byte> bytes) : dtype_(dtype), bytes_(bytes) {}

  DType dtype() const { return dtype_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::int64_t size() const { return static_cast<std::int64_t>(bytes_.size() / size_of(dtype_)); }
  TensorView part(std::int64_t first, std::int64_t count) const;
  // fp32 values where they are, others widened into the buffer.
  std::span<const float> floats(std::vector<float>& buffer) const;

 private:
  DType dtype_;
  std::span<const std::byte> bytes_;
};

// Row-major, without a shape of its own.
class Tensor {
 public:
  Tensor(DType dtype, std::int64_t count) : dtype_(dtype), bytes_(static_cast<std::size_t>(count) * size_of(dtype)) {}
  Tensor(std::span<const float> values, DType dtype);
  Tensor(std::initializer_list<float> values) : Tensor({values.begin(), values.size()}, DType::fp32) {}

  DType dtype() const { return dtype_; }
  TensorView view() const { return {dtype_, bytes_}; }
  // Rounded to nearest, ties to even.
  void set(std::int64_t index, float value);

 private:
  DType dtype_;
  std::vector<std::byte> bytes_;
};

}  // namespace xs
