#include "xstage/explore/protocols.hpp"

namespace xs::explore {

std::vector<ProtocolResult> explore_protocol(const Protocol& protocol) {
  const auto result = [&](const std::optional<Mutant>& mutant) {
    const auto found = explore(protocol.build(mutant ? mutant->name : ""));
    const bool killed =
        mutant && found.fault && found.fault->kind == mutant->fault && found.fault->place == mutant->place;
    return ProtocolResult{protocol.name, mutant, found.num_states, found.fault, mutant ? killed : !found.fault};
  };
  std::vector<ProtocolResult> results{result(std::nullopt)};
  for (const auto& mutant : protocol.mutants) results.push_back(result(mutant));
  return results;
}

std::vector<ProtocolResult> explore_protocols() {
  std::vector<ProtocolResult> results;
  for (const auto& protocols : {store_protocols(), bulk_protocols()}) {
    for (const auto& protocol : protocols) {
      for (auto& result : explore_protocol(protocol)) results.push_back(std::move(result));
    }
  }
  return results;
}

}  // namespace xs::explore
