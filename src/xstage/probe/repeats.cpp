#include "xstage/probe/repeats.hpp"

#include <algorithm>
#include <cmath>

namespace xs {

void Repeats::add(double value) { sorted_.insert(std::ranges::upper_bound(sorted_, value), value); }

double Repeats::median() const {
  const auto middle = sorted_.size() / 2;
  return sorted_.size() % 2 == 1 ? sorted_[middle] : (sorted_[middle - 1] + sorted_[middle]) / 2;
}

// How many values lie outside the interval at either end: the most for which the chance that so many of count()
// values, or fewer, fall on one side of the true median, a binomial, is at most 2.5 %.
int Repeats::rank_below() const {
  double chance = std::pow(0.5, count()), sum = chance;
  int outside = 0;
  while (sum <= 0.025) {
    ++outside;
    chance *= static_cast<double>(count() - outside + 1) / outside;
    sum += chance;
  }
  return std::max(0, outside - 1);
}

double Repeats::low() const { return sorted_[static_cast<std::size_t>(rank_below())]; }
double Repeats::high() const { return sorted_[sorted_.size() - 1 - static_cast<std::size_t>(rank_below())]; }

bool Repeats::settled(double precision) const {
  constexpr int kLeast = 6;  // of fewer values no interval holds the median with 95 %
  return count() >= kLeast && std::max(high() - median(), median() - low()) <= precision * median();
}

}  // namespace xs
