#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "xstage/bench/moe_cases.hpp"
#include "xstage/bench/moe_record.hpp"
#include "xstage/core/bucket.hpp"
#include "xstage/model/machine.hpp"
#include "xstage/plan/moe_problem.hpp"

// One case: the planner orders, every order is timed on one rank whose peers only receive, with the controls that say
// what stores cost.

namespace xs::bench {

// One rank of a layer, its weights and tokens in place.
class RankTimer {
 public:
  virtual ~RankTimer() = default;
  virtual Nanos time(const Order& order, Claim claim, RowsTo rows_to) = 0;
  virtual RunShares shares(const Order& order, Claim claim, RowsTo rows_to) = 0;
  virtual bool is_exact() const { return false; }  // once is enough
};

// `routing` is the one that the problem was made of.
using MakeTimer =
    std::function<std::unique_ptr<RankTimer>(const MoeProblem& problem, const Routing& routing, int workers)>;
// In virtual time, on the profile.
MakeTimer simulated_ranks(const Machine& machine, const std::string& dst, double pace = 0);

// The part of a profile's port that a paced rank keeps within; none for part 0.
BucketRates pace_of(const Machine& machine, const std::string& dst, double part);
// On the GPU of this machine, with the peers' memory at `receive`.
// `pace`: GpuRunOptions::pace.
MakeTimer gpu_ranks(int device, GpuPlace receive, const BucketRates& pace = {});

struct MoeBench {
  Machine machine;
  std::string dst;  // its port
  GpuPlace receive;
  int workers = 0;  // 0: workers_of()
  double pace = 0;  // part of the port that senders keep within; 0: they do not
  std::uint64_t seed = 1;
  MakeTimer make_timer;

  MoeRecord run(const MoeCase& one) const;
};

}  // namespace xs::bench
