#pragma once

#include <map>
#include <vector>

#include "xstage/model/fit.hpp"

// How well fits predict what they have not seen: whole patterns, worker counts, and where stalls begin and end.

namespace xs {

class Mean {
 public:
  void add(double value) { sum_ += value, ++count_; }
  int count() const { return count_; }
  double value() const { return count_ > 0 ? sum_ / count_ : 0; }

 private:
  double sum_ = 0;
  int count_ = 0;
};

// Absolute relative errors of the mean issue time.
class ErrorByWorkers {
 public:
  void add(int workers, double error) { all_.add(error), by_workers_[workers].add(error); }
  const Mean& all() const { return all_; }
  const std::map<int, Mean>& by_workers() const { return by_workers_; }

 private:
  Mean all_;
  std::map<int, Mean> by_workers_;
};

// Where the issue time over its free time passes 1.1.
struct Crossing {
  enum Kind {
    onset,     // the smallest burst that stalls, bytes, at a gap
    recovery,  // the smallest gap after which a burst does not stall, cycles, at a burst of so many bytes
  };
  Kind kind;
  int workers;
  double at;  // the gap of an onset, the bytes of a recovery
  double measured;
  double predicted;  // by the held-out predictions of the same patterns; 0: they do not pass it
};

// How far predicted crossings are from the measured ones, |predicted / measured - 1|. A curve may pass 1.1 nearly flat;
// then a small error in time moves the crossing far, so the mean tells little without the median.
struct CrossingError {
  int count = 0;
  int within_tenth = 0;
  double median = 0;
  double mean = 0;
};

struct PortHoldOut {
  std::string path, dst;
  int num_patterns = 0;
  double fitted_error = 0;  // on what the fit has seen
  ErrorByWorkers held_out;  // the (bytes, gap) pairs are dealt to parts; each is predicted from the others
  ErrorByWorkers left_out;  // one inner worker count after the other is predicted from the others
  std::vector<Crossing> crossings;

  CrossingError error(Crossing::Kind kind) const;
};

// Whether every part gets at least two pairs.
bool can_hold_out(std::span<const PatternSample> samples, int folds);
// PortHoldOut::held_out alone.
ErrorByWorkers held_out_error(std::span<const PatternSample> samples, const std::string& path, const std::string& dst,
                              const FitContext& context, int folds, const FitProgress& progress = {});
PortHoldOut hold_out(std::span<const PatternSample> samples, const std::string& path, const std::string& dst,
                     const FitContext& context, int folds, const FitProgress& progress = {});

// Between two points, which stand by rising x, linear in both logarithms; 0 if the curve does not pass 1.1.
struct CurvePoint {
  double x;
  double over_free;
};
double crossing(Crossing::Kind kind, std::span<const CurvePoint> curve);

}  // namespace xs
