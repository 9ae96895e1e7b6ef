#pragma once

#include <cstdint>
#include <vector>

#include "xstage/explore/listing.hpp"

// The memory model, as rules that hold before anything runs.
//
// There is one memory; an instruction is performed on it in one step, at any time that its rule allows. Nothing else
// keeps program order: the stores of a (thread, proxy) become visible in any order, a load may be satisfied early
// (before the loads that stand before it) or late (behind stores that stand after it). What does order:
//
//   - accesses to one place stay in order where one is ordered before the other: in one thread as they are listed
//     (coherence), across threads by a release that was acquired. What its thread had acquired is handed on with it
//     (cumulativity). Such an access may still be under way when the flag is seen: to a thread that does not acquire, a
//     store under way and a stale copy look the same.
//   - nothing passes an acquire. No load in front of a fence passes it. Nothing passes a full fence.
//   - what a wait guards is not done on speculation: no store and no bulk copy passes a wait. Loads do.
//
// "Ordered before" is kept per proxy. An access of the generic proxy is ordered before one of the asynchronous proxy
// only across a proxy fence that stands on the way, in either thread. wait_group orders the bulk copies before it,
// wait_group.read their reads, before what its own thread does next; only a release hands that on.
//
// Stronger than PTX: a store becomes visible to all other threads at once (with acquires, no two readers disagree about
// independent writes), to both proxies at once (after a full fence no proxy fence is missed), and an addition is one
// step. Plain accesses count as relaxed; a compiler may do worse to them.

namespace xs::explore {

using Mask = std::uint64_t;  // a set of instructions

constexpr Mask bit(std::size_t instruction) { return Mask{1} << instruction; }

// What is ordered before a point of a thread.
struct Before {
  Mask own = 0;             // by the listing
  Mask acquired = 0;        // loads; with each comes what its flag carried for the generic proxy
  Mask acquired_async = 0;  // the same for the asynchronous proxy
};

struct Rule {
  Mask after = 0;  // are performed first
  Mask meets = 0;  // are performed first if ordered before: those of its place; for a full fence, all
  Before before;   // for its own proxy
  Before carried;  // what a write hands to whoever acquires from it
  Before carried_async;
  Mask committed_by = 0;  // waits that must be over before what a load saw counts
};

// One rule per instruction of the program.
std::vector<Rule> rules_of(const Program& program);

}  // namespace xs::explore
