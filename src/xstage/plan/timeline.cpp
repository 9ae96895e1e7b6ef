#include "xstage/plan/timeline.hpp"

#include <algorithm>
#include <numeric>

namespace xs {

Breakdown breakdown(const Timeline& timeline) {
  Breakdown result;
  result.makespan = timeline.makespan;
  const double all = timeline.makespan.value * timeline.num_ranks * timeline.workers_per_rank;
  if (all <= 0) return result;
  for (const Span& span : timeline.spans) {
    result.share[static_cast<std::size_t>(span.kind)] += (span.end - span.begin).value / all;
  }
  result.tail = std::max(0.0, 1 - std::accumulate(result.share.begin(), result.share.end(), 0.0));
  if (timeline.link_busy.empty()) return result;
  for (const Nanos busy : timeline.link_busy) result.link_busy += busy / timeline.makespan / timeline.num_ranks;
  const auto total = [](const std::vector<Nanos>& times) {
    return std::accumulate(times.begin(), times.end(), Nanos{0});
  };
  const Nanos busy = total(timeline.link_busy);
  if (busy > Nanos{0}) result.overlap_ratio = total(timeline.link_hidden) / busy;
  return result;
}

}  // namespace xs
