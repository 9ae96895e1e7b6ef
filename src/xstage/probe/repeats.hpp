#pragma once

#include <vector>

// Repeated measurements of one thing, and when there are enough of them.

namespace xs {

// The centre is the median, with the interval of order statistics that holds the true one in 95 of 100 cases whatever
// the noise is distributed like: a few repeats that somebody disturbed move neither.
class Repeats {
 public:
  void add(double value);
  int count() const { return static_cast<int>(sorted_.size()); }
  double median() const;  // of at least one
  double low() const;     // from six on an interval of 95 %; before, all there is
  double high() const;
  // At least six, and the interval reaches no further than `precision` times the median to either side.
  bool settled(double precision) const;

 private:
  int rank_below() const;
  std::vector<double> sorted_;
};

}  // namespace xs
