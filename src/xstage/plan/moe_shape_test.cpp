#include "xstage/plan/moe_shape.hpp"

#include <gtest/gtest.h>

#include "xstage/core/test_support.hpp"

namespace xs {
namespace {

TEST(MoeModels, AreFoundByNameAndErrorsListTheNames) {
  const auto model = find_moe_model("deepseek-v3");
  EXPECT_EQ(model.shape, (MoeShape{7168, 2048, 256, 8}));
  EXPECT_EQ(model.shared_experts, 1);
  EXPECT_TRUE(model.verified);
  EXPECT_FALSE(find_moe_model("mixtral-8x22b").verified);
  for (const auto& listed : list_moe_models()) {
    EXPECT_EQ(find_moe_model(listed.name).shape, listed.shape);
    EXPECT_LE(listed.shape.topk, listed.shape.num_experts) << listed.name;
    expect_usage_error([] { find_moe_model("gpt-2"); }, {listed.name});
  }
}

TEST(MoeModels, ShrinkDividesTheMatricesOnly) {
  EXPECT_EQ(shrink({7168, 2048, 256, 8}, 16), (MoeShape{448, 128, 256, 8}));
  EXPECT_EQ(shrink({7168, 2048, 256, 8}, 1), (MoeShape{7168, 2048, 256, 8}));
  expect_usage_error([] { shrink({7168, 2048, 256, 8}, 0); }, {"at least 1, found 0"});
  expect_usage_error([] { shrink({7168, 2048, 256, 8}, 7); }, {"7 does not divide hidden 7168 and intermediate 2048"});
  expect_usage_error([] { shrink({2048, 7168, 256, 8}, 7); }, {"7 does not divide"});
}

}  // namespace
}  // namespace xs
