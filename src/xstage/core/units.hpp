#pragma once

// Units of the model: a number that carries its unit, with only the arithmetic that makes sense.
//
// Two clocks meet at a port: stores issue on the SM's clock, the link drains on its own. Both sides keep their
// unit until a clock rate converts one into the other:
//   Bytes{65536} / BytesPerNano{376} is Nanos;   Cycles{1980} / GigaHertz{1.98} is Nanos.
// Values are doubles: the model is a fluid, and whole nanoseconds would round a 1 KiB burst away.

#if defined(__CUDACC__)
#define XS_HD __host__ __device__
#else
#define XS_HD
#endif

namespace xs {

template <class Unit>
struct Quantity {
  double value = 0;

  // Not a defaulted <=>: its result type has no device code.
  friend XS_HD constexpr bool operator==(Quantity a, Quantity b) { return a.value == b.value; }
  friend XS_HD constexpr bool operator<(Quantity a, Quantity b) { return a.value < b.value; }
  friend XS_HD constexpr bool operator>(Quantity a, Quantity b) { return b < a; }
  friend XS_HD constexpr bool operator<=(Quantity a, Quantity b) { return a.value <= b.value; }
  friend XS_HD constexpr bool operator>=(Quantity a, Quantity b) { return b <= a; }
  XS_HD constexpr Quantity operator-() const { return {-value}; }
  XS_HD constexpr Quantity& operator+=(Quantity other) { return value += other.value, *this; }
  XS_HD constexpr Quantity& operator-=(Quantity other) { return value -= other.value, *this; }
  friend XS_HD constexpr Quantity operator+(Quantity a, Quantity b) { return {a.value + b.value}; }
  friend XS_HD constexpr Quantity operator-(Quantity a, Quantity b) { return {a.value - b.value}; }
  friend XS_HD constexpr Quantity operator*(Quantity a, double factor) { return {a.value * factor}; }
  friend XS_HD constexpr Quantity operator*(double factor, Quantity a) { return {a.value * factor}; }
  friend XS_HD constexpr Quantity operator/(Quantity a, double divisor) { return {a.value / divisor}; }
  friend XS_HD constexpr double operator/(Quantity a, Quantity b) { return a.value / b.value; }
};

using Bytes = Quantity<struct BytesUnit>;
using Nanos = Quantity<struct NanosUnit>;
using Cycles = Quantity<struct CyclesUnit>;
using GigaHertz = Quantity<struct GigaHertzUnit>;          // cycles per nanosecond
using BytesPerNano = Quantity<struct BytesPerNanoUnit>;    // = GB/s
using BytesPerCycle = Quantity<struct BytesPerCycleUnit>;  // per SM clock
using Flops = Quantity<struct FlopsUnit>;                  // a multiply-add counts as two
using FlopsPerCycle = Quantity<struct FlopsPerCycleUnit>;  // per SM and SM clock

XS_HD constexpr Nanos operator/(Bytes amount, BytesPerNano rate) { return {amount.value / rate.value}; }
XS_HD constexpr Bytes operator*(BytesPerNano rate, Nanos time) { return {rate.value * time.value}; }
XS_HD constexpr BytesPerNano operator/(Bytes amount, Nanos time) { return {amount.value / time.value}; }
XS_HD constexpr Cycles operator/(Bytes amount, BytesPerCycle rate) { return {amount.value / rate.value}; }
XS_HD constexpr Cycles operator/(Flops amount, FlopsPerCycle rate) { return {amount.value / rate.value}; }
XS_HD constexpr Nanos operator/(Cycles cycles, GigaHertz clock) { return {cycles.value / clock.value}; }
XS_HD constexpr Cycles operator*(Nanos time, GigaHertz clock) { return {time.value * clock.value}; }
XS_HD constexpr BytesPerNano operator*(BytesPerCycle rate, GigaHertz clock) { return {rate.value * clock.value}; }

template <class Unit>
XS_HD constexpr Quantity<Unit> min(Quantity<Unit> a, Quantity<Unit> b) {
  return b.value < a.value ? b : a;
}
template <class Unit>
XS_HD constexpr Quantity<Unit> max(Quantity<Unit> a, Quantity<Unit> b) {
  return a.value < b.value ? b : a;
}

template <class Int>
XS_HD constexpr Int ceil_div(Int amount, Int part) {
  return (amount + part - 1) / part;
}

}  // namespace xs
