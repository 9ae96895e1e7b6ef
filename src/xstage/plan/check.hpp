#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "xstage/plan/schedule.hpp"

// Proves a schedule before it runs: one scan per rank, one topological sort across ranks, one look at every slot.
//
// Tiles and flags. Every tile of every grid is done exactly once; every wait is reached by the raises that exist, and
// only by all of them (a smaller count would let a reader start before its data is complete); waits within a rank point
// to smaller claim indices; across ranks there is no cycle. A worker executes claims in order, so the sort orders every
// task behind the one claimed before it, which covers any number of workers and both ways to claim. A send to a peer is
// published by a raise at that peer.
//
// Memory. All that may touch a slot wait as they must: a reader for every writer of its generation, a writer for all
// that used the slot before. Only flags order here (plan/happens_before.hpp), so a wait that is not there is seen.

namespace xs {

enum class FaultKind {
  schedule_torn,  // lists that do not belong together; nothing else was looked at
  tile_missing,
  tile_twice,
  tile_unknown,  // outside the rank's grids
  flag_unknown,
  raise_empty,  // adds less than 1: a wait for the sum could end without it
  send_unknown,
  send_empty,
  send_unpublished,  // to a peer of which the task raises no flag
  slot_unknown,
  wait_never_raised,    // fewer raises than the wait asks for
  wait_too_early,       // more raises than the wait asks for
  wait_forward,         // needs a task of its own rank that is claimed later
  ring_too_small,       // the same, for a slot of a ring: more slots would do
  deadlock,             // a cycle across ranks
  read_before_written,  // a writer of what is read may still be at work
  reuse_before_read,    // a reader of what is overwritten may still be at work
  written_twice,        // a writer of what is overwritten, and never read, may still be at work
  over_capacity,        // only with a limit
  tail_too_long,        // only with a limit
};
inline constexpr std::string_view kFaultKindNames[] = {
    "schedule torn",       "tile missing",      "tile twice",    "tile unknown",     "flag unknown",
    "raise empty",         "send unknown",      "send empty",    "send unpublished", "slot unknown",
    "wait never raised",   "wait too early",    "wait forward",  "ring too small",   "deadlock",
    "read before written", "reuse before read", "written twice", "over capacity",    "tail too long"};

struct Fault {
  FaultKind kind;
  std::string text;  // begins with the kind; rank, claim, task and what is wrong
};

std::string to_string(FaultKind kind);
Fault make_fault(FaultKind kind, const std::string& text);

struct CheckLimits {
  std::optional<std::int64_t> tail_tasks = {};      // of any rank
  std::optional<std::int64_t> capacity_bytes = {};  // of a rank's port
  int workers = 1;                                  // of a rank: each may have its largest burst outstanding
};

// What a rank's order asks of its port and its memory. Tasks that compute nothing, like dispatch, are left out of tail
// and burst: no product stands behind their stores.
struct RankFigures {
  std::int64_t tail_tasks = 0;            // that send to peers behind the last one that computes and sends nothing
  std::int64_t largest_burst = 0;         // bytes that one task sends to peers
  std::int64_t burst_claim = -1;          // of that task
  std::vector<std::int32_t> ring_bounds;  // [region] the fewest slots that this order needs; 0 for what is no ring
};

struct CheckReport {
  std::vector<Fault> faults;       // the first `most`; none: the schedule is right
  std::vector<RankFigures> ranks;  // [rank], none of a torn schedule
};

// most >= 1.
CheckReport inspect(const Schedule& schedule, const CheckLimits& limits = {}, std::size_t most = 10);
// Its faults alone, without limits.
std::vector<Fault> check(const Schedule& schedule, std::size_t most = 10);

// Throws Error(usage) that lists the faults.
void require_valid(const Schedule& schedule, const std::string& name);
// "name: this schedule fails the check", and a line for every fault.
std::string describe(const std::vector<Fault>& faults, const std::string& name);

}  // namespace xs
