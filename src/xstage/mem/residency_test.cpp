#include "xstage/mem/residency.hpp"

#include <gtest/gtest.h>

#include "xstage/core/test_support.hpp"

namespace xs {
namespace {

TEST(Residency, AGridThatFitsIsTakenToTheLastBlock) {
  EXPECT_NO_THROW(require_resident({"exchange", 264, 128, 0, 132, 2}));
}

TEST(Residency, AGridThatCannotBeResidentIsRefusedWithNumbers) {
  expect_usage_error(
      [] {
        require_resident({"exchange", 265, 128, 4096, 132, 2});
      },
      {"exchange: 265 blocks of 128 threads and 4096 bytes", "132 SMs hold 264 (2 each)", "fewer ranks"});
  expect_usage_error([] { require_resident({"exchange", 1, 2048, 0, 132, 0}); }, {"132 SMs hold 0 (0 each)"});
  expect_usage_error([] { require_resident({"exchange", 0, 128, 0, 132, 2}); }, {"exchange: 0 blocks"});
}

}  // namespace
}  // namespace xs
