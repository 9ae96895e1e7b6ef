#include "xstage/plan/routing.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <span>

#include "xstage/core/error.hpp"
#include "xstage/core/random.hpp"

namespace xs {
namespace {

enum Stream : std::uint64_t { kPermutation = 1, kChoice, kWeight };

std::vector<std::int32_t> permutation(int count, std::uint64_t seed) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  const RandomKey key{seed, kPermutation};
  for (int i = count - 1; i > 0; --i) {
    std::swap(order[static_cast<std::size_t>(i)],
              order[static_cast<std::size_t>(key.below(static_cast<std::uint64_t>(i), i + 1))]);
  }
  return order;
}

// Every expert gets the same number of rows, within one. Slots walk around the experts in bit-reversed order (van der
// Corput's), so that any window of experts, hence any rank, has its share within a few rows after any number of slots.
void route_evenly(Routing& routing, int num_experts, std::uint64_t seed) {
  const int num_bits = std::bit_width(static_cast<unsigned>(num_experts - 1));
  const auto flip = RandomKey{seed, kPermutation}.below(0, std::int64_t{1} << num_bits);
  std::vector<std::int32_t> order;
  for (std::int64_t i = 0; i < std::int64_t{1} << num_bits; ++i) {
    std::int64_t expert = 0;
    for (int bit = 0; bit < num_bits; ++bit) expert = 2 * expert + ((i >> bit) & 1);
    expert ^= flip;
    if (expert < num_experts) order.push_back(static_cast<std::int32_t>(expert));
  }
  for (std::size_t i = 0; i < routing.expert.size(); ++i) {
    routing.expert[i] = order[i % static_cast<std::size_t>(num_experts)];
  }
}

// Top-k without replacement with probability proportional to popularity: the k largest of log p + Gumbel noise.
void route_by_popularity(Routing& routing, const std::vector<double>& log_popularity, std::uint64_t seed) {
  const RandomKey key{seed, kChoice};
  const auto num_experts = log_popularity.size();
  const auto topk = static_cast<std::size_t>(routing.topk);
  std::vector<std::pair<double, std::int32_t>> scores(num_experts);
  for (std::size_t token = 0; token < static_cast<std::size_t>(routing.num_tokens); ++token) {
    for (std::size_t expert = 0; expert < num_experts; ++expert) {
      const double uniform = key.uniform(token * num_experts + expert);
      scores[expert] = {log_popularity[expert] - std::log(-std::log(uniform + 0x1.0p-54)),
                        static_cast<std::int32_t>(expert)};
    }
    std::ranges::partial_sort(scores, scores.begin() + routing.topk, std::greater<>());
    for (std::size_t slot = 0; slot < topk; ++slot) routing.expert[token * topk + slot] = scores[slot].second;
  }
}

// Popularity 1 / rank^exponent. Scattered: the popular experts lie anywhere; else they are the first ones, so that one
// rank holds them.
std::vector<double> zipf(int num_experts, double exponent, bool scattered, std::uint64_t seed) {
  auto place = permutation(num_experts, seed);
  if (!scattered) std::ranges::sort(place);
  std::vector<double> log_popularity(static_cast<std::size_t>(num_experts));
  for (std::size_t i = 0; i < place.size(); ++i) {
    log_popularity[static_cast<std::size_t>(place[i])] = -exponent * std::log(static_cast<double>(i + 1));
  }
  return log_popularity;
}

}  // namespace

std::vector<RoutingInfo> list_routings() {
  return {{"balanced", "every expert gets the same number of rows, within one"},
          {"moderate", "popularity 1/rank^0.5, popular experts scattered"},
          {"zipf", "popularity 1/rank, popular experts scattered"},
          {"stress", "popularity 1/rank^1.5, popular experts next to each other on the first rank"},
          {"all-to-one", "every token goes to the first top-k experts"}};
}

Routing make_routing(const std::string& name, std::int64_t num_tokens, int num_experts, int topk, std::uint64_t seed) {
  require(topk >= 1 && topk <= num_experts, "top-k must be between 1 and the {} experts, found {}", num_experts, topk);
  Routing routing;
  routing.num_tokens = num_tokens;
  routing.topk = topk;
  const auto slots = static_cast<std::size_t>(num_tokens * topk);
  routing.expert.resize(slots);
  routing.weight.resize(slots);
  if (name == "balanced") {
    route_evenly(routing, num_experts, seed);
  } else if (name == "moderate") {
    route_by_popularity(routing, zipf(num_experts, 0.5, true, seed), seed);
  } else if (name == "zipf") {
    route_by_popularity(routing, zipf(num_experts, 1.0, true, seed), seed);
  } else if (name == "stress") {
    route_by_popularity(routing, zipf(num_experts, 1.5, false, seed), seed);
  } else if (name == "all-to-one") {
    for (std::size_t i = 0; i < slots; ++i)
      routing.expert[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(topk));
  } else {
    std::string names;
    for (const auto& known : list_routings()) names += (names.empty() ? "" : ", ") + known.name;
    fail(ErrorKind::usage, "routing {}: unknown; expected one of {}", excerpt(name), names);
  }
  const RandomKey key{seed, kWeight};
  for (std::size_t token = 0; token < static_cast<std::size_t>(num_tokens); ++token) {
    const auto weights =
        std::span(routing.weight).subspan(token * static_cast<std::size_t>(topk), static_cast<std::size_t>(topk));
    float sum = 0;
    for (std::size_t slot = 0; slot < weights.size(); ++slot) {
      weights[slot] = static_cast<float>(0.1 + key.uniform(token * weights.size() + slot));
      sum += weights[slot];
    }
    for (float& weight : weights) weight /= sum;
  }
  return routing;
}

Routing check_routing(Routing routing, int num_experts, const std::string& name) {
  const auto topk = static_cast<std::size_t>(routing.topk);
  const auto slots = static_cast<std::size_t>(routing.num_tokens) * topk;
  require(routing.expert.size() == slots && routing.weight.size() == slots,
          "{}: {} slots expected ({} tokens x top-{}), {} experts and {} weights found", name, slots,
          routing.num_tokens, routing.topk, routing.expert.size(), routing.weight.size());
  for (std::size_t i = 0; i < slots; ++i) {
    const auto token = i / topk, slot = i % topk;
    require(routing.expert[i] >= -1 && routing.expert[i] < num_experts,
            "{}: token {}, slot {}: expert {} is out of range; expected -1 (slot not used) to {}", name, token, slot,
            routing.expert[i], num_experts - 1);
    require(std::isfinite(routing.weight[i]), "{}: token {}, slot {}: the weight is {}", name, token, slot,
            routing.weight[i]);
    for (std::size_t j = token * topk; j < i; ++j) {
      require(routing.expert[i] < 0 || routing.expert[i] != routing.expert[j], "{}: token {} names expert {} twice",
              name, token, routing.expert[i]);
    }
  }
  return routing;
}

}  // namespace xs
