#include "xstage/plan/timeline.hpp"

#include <algorithm>
#include <numeric>

namespace xs {

std::vector<Breakdown> breakdown_by_rank(const Timeline& timeline) {
  const auto num_ranks = static_cast<std::size_t>(timeline.num_ranks);
  auto totals = timeline.totals;
  if (totals.empty()) {
    totals.resize(num_ranks);
    for (const Span& span : timeline.spans) {
      totals[static_cast<std::size_t>(span.rank)][static_cast<std::size_t>(span.kind)] += span.end - span.begin;
    }
  }
  const Nanos all = timeline.makespan * timeline.workers_per_rank;
  std::vector<Breakdown> ranks(num_ranks);
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    Breakdown& result = ranks[rank];
    result.makespan = timeline.makespan;
    if (all <= Nanos{0}) continue;
    for (std::size_t kind = 0; kind < kNumSpanKinds; ++kind) result.share[kind] = totals[rank][kind] / all;
    result.tail = std::max(0.0, 1 - std::accumulate(result.share.begin(), result.share.end(), 0.0));
    if (timeline.link_busy.empty()) continue;
    const Nanos busy = timeline.link_busy[rank];
    result.link_busy = busy / timeline.makespan;
    if (busy > Nanos{0}) result.overlap_ratio = timeline.link_hidden[rank] / busy;
  }
  return ranks;
}

Breakdown breakdown(const Timeline& timeline) {
  Breakdown mean;
  mean.makespan = timeline.makespan;
  double hidden = 0;
  for (const Breakdown& rank : breakdown_by_rank(timeline)) {
    for (std::size_t kind = 0; kind < kNumSpanKinds; ++kind) mean.share[kind] += rank.share[kind] / timeline.num_ranks;
    mean.tail += rank.tail / timeline.num_ranks;
    mean.link_busy += rank.link_busy / timeline.num_ranks;
    hidden += rank.link_busy * rank.overlap_ratio / timeline.num_ranks;
  }
  if (mean.link_busy > 0) mean.overlap_ratio = hidden / mean.link_busy;
  return mean;
}

}  // namespace xs
