#include "xstage/tile/store_path.hpp"

#include <gtest/gtest.h>

#include "xstage/core/test_support.hpp"

namespace xs {
namespace {

TEST(StorePath, EveryNameReadsBack) {
  for (const auto* name : {"st16", "st4", "bulk", "tensor"}) EXPECT_EQ(to_string(parse_store_path(name)), name);
}

TEST(StorePath, AnUnknownNameIsAnErrorThatListsThem) {
  expect_usage_error([] { parse_store_path("st8"); }, {"st8", "st16, st4, bulk or tensor"});
}

}  // namespace
}  // namespace xs
