#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

// Random numbers as a pure function of (seed, stream, index), so that a rank makes exactly its own part of a
// tensor and every split over ranks sees the same values. SplitMix64's finalizer (Steele, Lea, Flood, OOPSLA 2014)
// over the mixed key; not for cryptography.

namespace xs {

constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

struct RandomKey {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;  // one per tensor

  constexpr std::uint64_t bits(std::uint64_t index) const { return mix64(mix64(mix64(seed) ^ stream) ^ index); }
  // In [0, 1).
  constexpr double uniform(std::uint64_t index) const { return static_cast<double>(bits(index) >> 11) * 0x1.0p-53; }
  // In [0, bound).
  constexpr std::int64_t below(std::uint64_t index, std::int64_t bound) const {
    return static_cast<std::int64_t>(uniform(index) * static_cast<double>(bound));
  }
  // Mean 0, variance 1 (Box-Muller).
  double normal(std::uint64_t index) const {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform(2 * index)));
    return radius * std::cos(2.0 * std::numbers::pi * uniform(2 * index + 1));
  }
};

}  // namespace xs
