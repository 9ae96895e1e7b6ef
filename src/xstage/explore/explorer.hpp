#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "xstage/explore/listing.hpp"

// Every outcome of a program: through all states that the memory model allows, each visited once. No sampling and no
// truncation, the same result in every run. Of all ways to a fault the one with the fewest reorderings is told.

namespace xs::explore {

enum class FaultKind {
  stale_read,        // a read saw less than it must: it ran before the data was there
  overwritten_read,  // a read saw more than it must: the buffer was reused before it
  deadlock,          // what is left waits for what cannot come
};
std::string_view to_string(FaultKind kind);

struct Fault {
  FaultKind kind;
  std::string place;               // that was read, or is waited for
  std::string text;                // who, what, and after which wait
  std::vector<std::string> steps;  // one for each instruction performed, in order
};

struct Exploration {
  std::size_t num_states = 0;
  std::optional<Fault> fault;  // the exploration ends with it
  // What the loads without an expectation saw, in the order of the listing; one entry per way to end.
  std::set<std::vector<Value>> outcomes;
};

// Throws Error(usage) if there are more than `most_states`.
Exploration explore(const Program& program, std::size_t most_states = 1'000'000);

}  // namespace xs::explore
