#include "xstage/core/units.hpp"

#include <gtest/gtest.h>

namespace xs {
namespace {

template <class A, class B>
concept Addable = requires(A a, B b) {
  a + b;
};
template <class A, class B>
concept Comparable = requires(A a, B b) {
  a < b;
};
template <class A, class B>
concept Multipliable = requires(A a, B b) {
  a* b;
};

TEST(Units, OnlyEqualUnitsAddAndCompare) {
  static_assert(Addable<Bytes, Bytes> && Comparable<Nanos, Nanos>);
  static_assert(!Addable<Bytes, Nanos> && !Addable<Nanos, Cycles> && !Addable<BytesPerNano, BytesPerCycle>);
  static_assert(!Addable<Bytes, double> && !Comparable<Bytes, double> && !Comparable<Nanos, Cycles>);
  static_assert(!Multipliable<Bytes, Bytes> && !Multipliable<Bytes, BytesPerNano>);
}

TEST(Units, RatesTimesAndAmountsAgree) {
  const Bytes bytes{65536};
  const BytesPerNano rate{376};
  EXPECT_DOUBLE_EQ((bytes / rate).value, 65536.0 / 376);
  EXPECT_DOUBLE_EQ((rate * (bytes / rate)).value, bytes.value);
  EXPECT_DOUBLE_EQ((bytes / (bytes / rate)).value, rate.value);
}

TEST(Units, ClockRatesTurnCyclesIntoTimeAndBack) {
  const GigaHertz clock{1.98};
  EXPECT_DOUBLE_EQ((Cycles{1980} / clock).value, 1000);
  EXPECT_DOUBLE_EQ((Nanos{1000} * clock).value, 1980);
  EXPECT_DOUBLE_EQ((BytesPerCycle{20.5} * clock).value, 40.59);
  EXPECT_DOUBLE_EQ((Bytes{4100} / BytesPerCycle{20.5} / clock).value, (Bytes{4100} / BytesPerNano{40.59}).value);
  EXPECT_DOUBLE_EQ((Flops{5800} / FlopsPerCycle{2900} / clock).value, 2 / 1.98);
}

TEST(Units, SumsDifferencesAndFactors) {
  Nanos time{10};
  time += {5};
  time -= {1};
  EXPECT_EQ(time, Nanos{14});
  EXPECT_EQ(-time, Nanos{-14});
  EXPECT_EQ(2 * time, time * 2);
  EXPECT_EQ(time / 2, Nanos{7});
  EXPECT_EQ(time / Nanos{7}, 2.0);
  EXPECT_EQ(time + Nanos{1} - Nanos{3}, Nanos{12});
}

TEST(Units, MinAndMaxKeepTheUnit) {
  EXPECT_EQ(min(Bytes{1}, Bytes{2}), Bytes{1});
  EXPECT_EQ(min(Bytes{2}, Bytes{1}), Bytes{1});
  EXPECT_EQ(max(Bytes{1}, Bytes{2}), Bytes{2});
  EXPECT_EQ(max(Bytes{2}, Bytes{1}), Bytes{2});
}

TEST(Units, CeilDivCountsTheStartedPart) {
  for (int amount = 0; amount < 40; ++amount) {
    for (int part = 1; part < 12; ++part) {
      const int parts = ceil_div(amount, part);
      EXPECT_GE(parts * part, amount);
      EXPECT_LT((parts - 1) * part, amount);
    }
  }
}

}  // namespace
}  // namespace xs
