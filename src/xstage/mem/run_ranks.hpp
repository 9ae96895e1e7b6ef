#pragma once

#include <functional>

#include "xstage/mem/world.hpp"

namespace xs {

// Runs `body` once per rank, each on a thread or in a process of its own, and returns when all have ended.
//
// Processes are forked, so the caller must have no other threads, and what a body leaves behind for the caller must lie
// in the world's memory. All of them are there before any body begins; none outlives the caller, however it ends.
//
// In a world with a port every rank has one, and is done when all that it put is there.
//
// Rethrows the cause: first a rank that was lost (a process that a signal ended; Error(timeout) when it came from
// outside, Error(internal) for a crash), then an error of a body, then the timeout of one that waited for it.
void run_ranks(const World& world, const std::function<void(Rank)>& body);

}  // namespace xs
