#pragma once

#include "xstage/core/bucket.hpp"

namespace xs {

// Keeps one worker within its share of a port: it may have `share.capacity` bytes outstanding, which drain at
// `share.drain`. No worker knows of another; if the shares add up to no more than the port has, the port never fills.
// A worker asks wait() before a burst, waits so long, and calls begin() with the time at which it really begins: who is
// late has lost no more of the link than the bucket was empty. Times are of one clock that does not run backwards.
// No division after the constructor: a question costs a GPU's thread some tens of cycles.
class Pacer {
 public:
  XS_HD constexpr Pacer(const BucketRates& share, Nanos now)
      : drain_(share.drain), capacity_(share.capacity), per_byte_(Bytes{1} / share.drain), empty_(now) {}

  // From `now` until `bytes` more are within the share. A burst larger than the share's capacity never is: it waits
  // until nothing is outstanding; store it in pieces.
  XS_HD constexpr Nanos wait(Bytes bytes, Nanos now) const {
    const Bytes room = capacity_ - min(bytes, capacity_);
    return max(Nanos{0}, empty_ - now - per_byte_ * room.value);
  }

  // The burst begins; all of it counts as outstanding at once, as if it took no time to issue.
  XS_HD constexpr void begin(Bytes bytes, Nanos now) { empty_ = max(empty_, now) + per_byte_ * bytes.value; }

  XS_HD constexpr Bytes outstanding(Nanos now) const { return drain_ * max(Nanos{0}, empty_ - now); }

 private:
  BytesPerNano drain_;
  Bytes capacity_;
  Nanos per_byte_;
  Nanos empty_;  // when nothing will be outstanding any more
};

// The part of one of `workers` workers that divide a port evenly and leave the rest of it to others.
XS_HD constexpr BucketRates even_share(const BucketRates& port, int workers, double part) {
  return {port.free_issue, port.drain * (part / workers), port.capacity * (part / workers)};
}

}  // namespace xs
