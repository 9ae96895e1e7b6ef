#pragma once

#include "xstage/core/units.hpp"

// One worker's outstanding bytes: the arithmetic of Burst-Gap for a worker that has a fixed share of a port.
//
// Stores enter at the free issue rate until `capacity` bytes are outstanding; from then on they enter as fast as
// the port drains. Between bursts the port only drains. The device-side pacer keeps one bucket per worker with the
// plan's share of capacity and drain; model::PortPool couples workers that share without a fixed split and equals
// this bucket when all of them move in step (port_test.cpp).

namespace xs {

struct BucketRates {
  BytesPerNano free_issue;  // rate at which an unstalled worker stores
  BytesPerNano drain;       // this worker's share of the link
  Bytes capacity;           // this worker's share of what may be outstanding
};

struct Bucket {
  Bytes outstanding{0};

  XS_HD constexpr void pass(const BucketRates& rates, Nanos gap) {
    outstanding = max(Bytes{0}, outstanding - rates.drain * gap);
  }

  // Issues `bytes` back to back and returns how long that takes; at least bytes / free_issue.
  XS_HD constexpr Nanos issue(const BucketRates& rates, Bytes bytes) {
    const Nanos free_time = bytes / rates.free_issue;
    if (rates.free_issue <= rates.drain) {
      outstanding = max(Bytes{0}, outstanding + bytes - rates.drain * free_time);
      return free_time;
    }
    const Nanos until_full = (rates.capacity - outstanding) / (rates.free_issue - rates.drain);
    if (free_time <= until_full) {
      outstanding += bytes - rates.drain * free_time;
      return free_time;
    }
    const Bytes left = bytes - rates.free_issue * until_full;
    outstanding = rates.capacity;
    return until_full + left / rates.drain;
  }
};

}  // namespace xs
