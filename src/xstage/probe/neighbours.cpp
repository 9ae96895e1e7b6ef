#include "xstage/probe/neighbours.hpp"

#include <algorithm>

#include "xstage/core/error.hpp"

namespace xs {
namespace {

bool same_loads(const NeighbourPattern& a, const NeighbourPattern& b) {
  return a.loaders == b.loaders && a.from_cache == b.from_cache;
}

}  // namespace

NeighbourTable::Kept NeighbourTable::kept_at(double pace) const {
  Kept kept{1, 1};
  for (const auto& cost : costs) {
    if (cost.pattern.storers == 0 || cost.pace != pace) continue;
    kept.loads = std::min(kept.loads, cost.load_share);
    const auto unpaced = std::ranges::find_if(costs, [&](const NeighbourCost& other) {
      return other.pace == 0 && other.pattern.storers == cost.pattern.storers &&
             same_loads(other.pattern, cost.pattern);
    });
    if (unpaced != costs.end() && unpaced->store_share >= 0.95) kept.stores = std::min(kept.stores, cost.store_share);
  }
  return kept;
}

double NeighbourTable::best_pace(double least_loads) const {
  double best = 0;
  for (const auto& cost : costs) {
    if (cost.pace > best && kept_at(cost.pace).loads >= least_loads) best = cost.pace;
  }
  return best;
}

NeighbourTable probe_neighbours(const NeighbourTarget& target, const NeighbourOptions& options,
                                const std::function<void(double)>& progress) {
  require(!options.storers.empty() && std::ranges::min(options.storers) >= 1 &&
              std::ranges::max(options.storers) < target.num_sms,
          "storing SMs: expected from 1 to {}", target.num_sms - 1);
  require(options.repeats >= 1, "a probe needs at least one repeat");
  const int most = std::ranges::max(options.storers);
  std::vector<NeighbourPattern> loads;
  for (const bool from_cache : {true, false}) {
    for (const int loaders :
         {std::max(1, std::min(target.num_sms / 8, target.num_sms - most)), target.num_sms - most}) {
      loads.push_back({0, loaders, from_cache});
    }
  }
  NeighbourTable table;
  const auto add = [&](int storers, double pace) {
    for (auto pattern : loads) {
      pattern.storers = storers;
      pattern.pace = table.drain * pace;
      table.costs.push_back({pattern, pace});
    }
  };
  const double steps =
      options.repeats * (1.0 + static_cast<double>(options.storers.size() * (1 + options.paces.size())));
  double done = 0;
  const auto measure = [&](std::size_t first) {
    for (int i = 0; i < options.repeats; ++i) {
      for (std::size_t at = first; at < table.costs.size(); ++at) {
        auto& cost = table.costs[at];
        const auto rates = target.run(cost.pattern);
        cost.store.add(rates.store.value);
        cost.load.add(rates.load.value);
        done += 1.0 / static_cast<double>(loads.size());
        if (progress) progress(done / steps);
      }
    }
  };
  add(0, 0);
  for (const int storers : options.storers) add(storers, 0);
  measure(0);
  for (const auto& cost : table.costs) table.drain = max(table.drain, BytesPerNano{cost.store.median()});
  const std::size_t first_paced = table.costs.size();
  for (const double pace : options.paces) {
    for (const int storers : options.storers) add(storers, pace);
  }
  measure(first_paced);
  for (auto& cost : table.costs) {
    const auto alone = std::ranges::find_if(table.costs, [&](const NeighbourCost& other) {
      return other.pattern.storers == 0 && same_loads(other.pattern, cost.pattern);
    });
    cost.store_share = cost.store.median() / table.drain.value;
    cost.load_share = cost.load.median() / alone->load.median();
  }
  return table;
}

}  // namespace xs
