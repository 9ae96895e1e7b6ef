#include "xstage/plan/measured_rank.hpp"

#include <algorithm>
#include <utility>

namespace xs {
namespace {

std::vector<std::int64_t> own_raises(const RankSchedule& schedule, int rank, std::int32_t num_flags) {
  std::vector<std::int64_t> total(static_cast<std::size_t>(num_flags));
  for (std::size_t claim = 0; claim < schedule.tasks.size(); ++claim) {
    for (const Raise& raise : schedule.raises[claim]) {
      if (raise.rank == rank) total[static_cast<std::size_t>(raise.flag)] += raise.add;
    }
  }
  return total;
}

}  // namespace

Schedule measured_rank(const MoeProblem& problem, int rank, const Order& order, RowsTo rows_to, const MoeBytes& bytes) {
  Schedule alone{problem.flags(), problem.regions(), {}};
  alone.ranks.resize(static_cast<std::size_t>(problem.num_ranks()));
  auto whole = problem.rank_schedule(rank, expand(order, problem.counts(rank)), bytes);
  const auto raised = own_raises(whole, rank, alone.num_flags());
  RankSchedule& mine = alone.ranks[static_cast<std::size_t>(rank)];
  for (std::size_t claim = 0; claim < whole.tasks.size(); ++claim) {
    for (const Wait& wait : whole.waits[claim]) {
      const auto count = std::min(wait.count, raised[static_cast<std::size_t>(wait.flag)]);
      if (count > 0) mine.waits.append({wait.flag, count});
    }
    for (const Raise& raise : whole.raises[claim]) {
      if (raise.rank == rank || rows_to == RowsTo::owners) mine.raises.append(raise);
    }
    const bool has_rows_to_send = whole.tasks[claim].kind != TaskKind::linear2 || rows_to != RowsTo::nowhere;
    for (const Send& send : whole.sends[claim]) {
      if (has_rows_to_send) mine.sends.append({rows_to == RowsTo::owners ? send.rank : rank, send.bytes});
    }
    for (const Access& access : whole.accesses[claim]) mine.accesses.append(access);
    mine.end_rows();
  }
  mine.grids = std::move(whole.grids);
  mine.tasks = std::move(whole.tasks);
  mine.work = std::move(whole.work);
  return alone;
}

double bytes_to_peers(const MoeProblem& problem, int rank, const MoeBytes& bytes) {
  double sent = 0;
  for (std::int32_t expert = 0; expert < problem.shape().all_experts(); ++expert) {
    for (int peer = 0; peer < problem.num_ranks(); ++peer) {
      if (peer == rank) continue;
      if (problem.holder(expert, rank) == peer) sent += problem.rows_of(rank, expert) * bytes.dispatch;
      if (problem.holder(expert, peer) == rank) sent += problem.rows_of(peer, expert) * bytes.combine;
    }
  }
  return sent * static_cast<double>(problem.shape().hidden);
}

}  // namespace xs
