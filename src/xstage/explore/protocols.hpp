#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "xstage/explore/explorer.hpp"
#include "xstage/explore/listing.hpp"

// The publish and wait protocols of docs/protocol.md as programs, each with the mistakes that it must not survive. A
// protocol holds if no outcome of it has a fault; a mutant is killed if one of its outcomes has the fault that its
// mistake must cause.

namespace xs::explore {

struct Mutant {
  std::string name;
  FaultKind fault;    // that it must cause
  std::string place;  // and where
};

struct Protocol {
  std::string name;
  // The program, with the mistake of that name; without one if it is empty.
  std::function<Program(std::string_view mutant)> build;
  std::vector<Mutant> mutants;
};

struct ProtocolResult {
  std::string protocol;
  std::optional<Mutant> mutant;  // none: the protocol as it is
  std::size_t num_states;
  std::optional<Fault> fault;
  // The protocol holds, or the mutant is killed by what it must cause.
  bool passed;
};

// Those that move data by stores of the generic proxy, and those that move it by bulk copies.
std::vector<Protocol> store_protocols();
std::vector<Protocol> bulk_protocols();

// The protocol as it is, then each of its mutants.
std::vector<ProtocolResult> explore_protocol(const Protocol& protocol);
std::vector<ProtocolResult> explore_protocols();

}  // namespace xs::explore
