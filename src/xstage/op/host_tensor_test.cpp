#include "xstage/op/host_tensor.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "xstage/core/test_support.hpp"

namespace xs {
namespace {

float through_bf16(float value) {
  std::vector<float> buffer;
  return Tensor(std::span(&value, 1), DType::bf16).view().floats(buffer)[0];
}

TEST(HostTensor, Fp32IsReadWhereItIs) {
  const Tensor tensor{1.0f, -2.5f, 3.25f};
  std::vector<float> buffer;
  const auto values = tensor.view().part(1, 2).floats(buffer);
  EXPECT_TRUE(buffer.empty());
  ASSERT_EQ(values.size(), 2u);
  EXPECT_EQ(values[0], -2.5f);
  EXPECT_EQ(values[1], 3.25f);
}

TEST(HostTensor, Bf16TakesHalfTheBytesAndRoundsToNearestEven) {
  const std::vector<float> values(6, 1.0f);
  EXPECT_EQ(Tensor(values, DType::bf16).view().bytes().size(), 12u);
  EXPECT_EQ(Tensor(values, DType::bf16).view().size(), 6);
  // bf16 has 8 significant bits: between 1 and 1 + 2^-7 lies the tie 1 + 2^-8.
  EXPECT_EQ(through_bf16(1 + 0x1p-8f), 1.0f);
  EXPECT_EQ(through_bf16(1 + 0x1p-8f + 0x1p-20f), 1 + 0x1p-7f);
  EXPECT_EQ(through_bf16(1 + 3 * 0x1p-8f), 1 + 2 * 0x1p-7f);
  EXPECT_EQ(through_bf16(-(1 + 0x1p-8f)), -1.0f);
}

TEST(HostTensor, EveryBf16ValueSurvivesAndNaNStaysNaN) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto value = std::bit_cast<float>(bits << 16);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(through_bf16(value))) << bits;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(through_bf16(value)), bits << 16);
    }
  }
  EXPECT_TRUE(std::isnan(through_bf16(std::bit_cast<float>(0x7f800001u))));  // all its mantissa in the lower half
  EXPECT_EQ(through_bf16(std::numeric_limits<float>::max()), std::numeric_limits<float>::infinity());
}

TEST(HostTensor, TypesAreKnownByName) {
  EXPECT_EQ(parse_dtype("fp32"), DType::fp32);
  EXPECT_EQ(parse_dtype("bf16"), DType::bf16);
  expect_usage_error([] { parse_dtype("fp8"); }, {"data type fp8", "fp32 or bf16"});
}

}  // namespace
}  // namespace xs
