#include "xstage/op/host_product.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "xstage/core/random.hpp"

namespace xs {
namespace {

std::vector<float> random_matrix(std::int64_t size, std::uint64_t stream) {
  const RandomKey key{3, stream};
  std::vector<float> values(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(2 * key.uniform(i) - 1);
  return values;
}

TEST(HostProduct, EqualsTheSumsInDoubleWithPaddedLeadingDimensions) {
  const RandomKey key{5, 0};
  for (std::uint64_t draw = 0; draw < 20; ++draw) {
    const auto extent = [&](std::uint64_t i) { return 1 + key.below(7 * draw + i, 70); };
    const auto m = extent(0), n = extent(1), k = extent(2), lda = k + extent(3), ldb = k + extent(4),
               ldc = n + extent(5);
    const auto a = random_matrix(m * lda, 1), b = random_matrix(n * ldb, 2);
    std::vector<float> c(static_cast<std::size_t>(m * ldc), -7.0f);
    host_product(m, n, k, a.data(), lda, b.data(), ldb, c.data(), ldc);
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < ldc; ++j) {
        const float found = c[static_cast<std::size_t>(i * ldc + j)];
        if (j >= n) {
          ASSERT_EQ(found, -7.0f) << "written beyond column " << n;
          continue;
        }
        double sum = 0;
        for (std::int64_t p = 0; p < k; ++p) {
          sum +=
              static_cast<double>(a[static_cast<std::size_t>(i * lda + p)]) * b[static_cast<std::size_t>(j * ldb + p)];
        }
        ASSERT_NEAR(found, sum, 1e-6 * static_cast<double>(k)) << m << "x" << n << "x" << k;
      }
    }
  }
}

// Bitwise comparisons across schedules rest on this.
TEST(HostProduct, TheSameTileGivesTheSameBits) {
  const std::int64_t m = 128, n = 64, k = 448;
  const auto a = random_matrix(m * k, 1), b = random_matrix(n * k, 2);
  std::vector<float> first(static_cast<std::size_t>(m * n)), second(first.size());
  host_product(m, n, k, a.data(), k, b.data(), k, first.data(), n);
  host_product(m, n, k, a.data(), k, b.data(), k, second.data(), n);
  EXPECT_EQ(first, second);
}

// A row stands elsewhere in its block when experts or tokens lie on other ranks.
TEST(HostProduct, ARowGivesTheSameBitsWhereverItStandsAndWhateverStandsBesideIt) {
  const RandomKey key{6, 0};
  for (std::uint64_t draw = 0; draw < 30; ++draw) {
    const auto extent = [&](std::uint64_t i, std::int64_t most) { return 1 + key.below(3 * draw + i, most); };
    const auto m = extent(0, 130), n = extent(1, 130), k = extent(2, 500);
    const auto b = random_matrix(n * k, 2), row = random_matrix(k, 3);
    std::vector<float> first;
    for (std::int64_t place = 0; place < m; place += 1 + m / 7) {
      auto a = random_matrix(m * k, 4 + static_cast<std::uint64_t>(place));
      std::copy(row.begin(), row.end(), a.begin() + place * k);
      std::vector<float> c(static_cast<std::size_t>(m * n));
      host_product(m, n, k, a.data(), k, b.data(), k, c.data(), n);
      const std::vector<float> found(c.begin() + place * n, c.begin() + (place + 1) * n);
      if (first.empty()) first = found;
      ASSERT_EQ(found, first) << "row " << place << " of " << m << "x" << n << "x" << k;
    }
  }
}

}  // namespace
}  // namespace xs
