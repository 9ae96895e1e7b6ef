#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Which experts each token goes to. Tokens are numbered over all ranks, so that a routing does not depend on how many
// ranks share it.

namespace xs {

struct Routing {
  std::int64_t num_tokens = 0;
  int topk = 0;
  std::vector<std::int32_t> expert;  // [num_tokens, topk]; -1: slot not used
  std::vector<float> weight;         // [num_tokens, topk]

  std::int32_t expert_at(std::int64_t token, int slot) const {
    return expert[static_cast<std::size_t>(token * topk + slot)];
  }
};

struct RoutingInfo {
  std::string name;
  std::string what;
};
// balanced, moderate, zipf, stress, all-to-one.
std::vector<RoutingInfo> list_routings();

// Distinct experts per token; weights are positive and sum to 1 per token. Throws on an unknown name or topk above
// num_experts.
Routing make_routing(const std::string& name, std::int64_t num_tokens, int num_experts, int topk, std::uint64_t seed);

// From [num_tokens, topk] arrays: experts in [-1, num_experts), distinct within a token; weights finite. `name` is for
// errors.
Routing check_routing(Routing routing, int num_experts, const std::string& name);

}  // namespace xs
