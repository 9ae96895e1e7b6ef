#include "xstage/plan/moe_problem.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "xstage/core/error.hpp"

namespace xs {
namespace {

// Far above any machine; what is made from a file stays in proportion to it.
constexpr int kMostRanks = 4096;
constexpr std::int64_t kMostSegments = std::int64_t{1} << 26;

}  // namespace

MoeProblem::MoeProblem(const MoeShape& shape, const MoeTiling& tiling, int num_ranks, std::int64_t num_tokens,
                       std::vector<std::int32_t> rows)
    : MoeProblem(shape, tiling, complete({}, shape, num_ranks, num_tokens), std::move(rows)) {}

MoeProblem::MoeProblem(const MoeShape& shape, const MoeTiling& tiling, MoePlacement placement,
                       std::vector<std::int32_t> rows)
    : shape_(shape), tiling_(tiling), placement_(std::move(placement)), rows_(std::move(rows)) {
  require(shape.hidden >= 1 && shape.intermediate >= 1 && shape.num_experts >= 1 && shape.topk >= 1,
          "MoE shape: hidden, intermediate, experts and top-k must be at least 1");
  require(shape.num_shared >= 0, "MoE shape: shared experts must be at least 0, found {}", shape.num_shared);
  require(tiling.block_rows >= 1 && tiling.linear1_cols >= 1 && tiling.linear2_cols >= 1 && tiling.reduce_tokens >= 1,
          "MoE tiling: every tile extent must be at least 1");
  require(tiling.dispatch_parts >= 1, "MoE tiling: dispatch parts must be at least 1, found {}", tiling.dispatch_parts);
  require(tiling.ring_blocks >= 0, "MoE tiling: ring blocks must be at least 1, or 0 for no ring; found {}",
          tiling.ring_blocks);
  require(num_ranks() >= 1, "ranks must be at least 1, found {}", num_ranks());
  require(num_ranks() <= kMostRanks, "ranks must be at most {}, found {}", kMostRanks, num_ranks());
  require(std::ranges::all_of(placement_.tokens, [](auto tokens) { return tokens >= 0; }),
          "tokens per rank must not be negative");
  require(placement_.experts.num_experts() == shape.num_experts, "expert map: {} experts expected, {} found",
          shape.num_experts, placement_.experts.num_experts());
  require(rows_.size() == index(num_ranks()) * index(shape.num_experts),
          "row counts: {} expected ({} ranks x {} experts), {} found", index(num_ranks()) * index(shape.num_experts),
          num_ranks(), shape.num_experts, rows_.size());
  require(std::ranges::all_of(rows_, [](auto count) { return count >= 0; }), "row counts must not be negative");
  token_begin_.push_back(0);
  for (const auto tokens : placement_.tokens) token_begin_.push_back(token_begin_.back() + tokens);
  const auto num_rows =
      std::accumulate(rows_.begin(), rows_.end(), std::int64_t{0}) + shape.num_shared * token_begin_.back();
  require(std::in_range<std::int32_t>(num_rows), "row counts: their sum {} is more than 32 bits count", num_rows);

  // Each expert may end in a block that is not full.
  const auto most_segments = (num_rows / tiling.block_rows + shape.all_experts()) * num_ranks();
  require(most_segments <= kMostSegments,
          "{} rows in blocks of {} from {} ranks may make {} segments, more than {}; take larger blocks", num_rows,
          tiling.block_rows, num_ranks(), most_segments, kMostSegments);

  experts_ = placement_.experts.with_shared(shape.num_shared, num_ranks());
  local_experts_.resize(index(num_ranks()));
  for (std::int32_t expert = 0; expert < shape.all_experts(); ++expert) {
    for (const auto rank : experts_.holders(expert)) local_experts_[index(rank)].push_back(expert);
  }
  offsets_.resize(index(num_ranks()) * index(shape.all_experts()));
  dispatch_experts_.resize(index(num_ranks()));
  blocks_.resize(index(num_ranks()));
  group_blocks_.resize(index(num_ranks()));
  group_starts_.resize(index(num_ranks()));
  owned_blocks_.resize(index(num_ranks()) * index(num_ranks()));
  for (int rank = 0; rank < num_ranks(); ++rank) {
    place_rows(rank);
    order_dispatch(rank);
    max_blocks_ = std::max(max_blocks_, num_blocks(rank));
  }
}

// Rows and blocks of the experts that the rank holds.
void MoeProblem::place_rows(int rank) {
  auto& blocks = blocks_[index(rank)];
  auto& prefix = group_blocks_[index(rank)];
  prefix.push_back(0);
  for (const auto expert : local_experts(rank)) {
    const auto holders = experts_.holders(expert);
    const auto replica = static_cast<std::int32_t>(std::ranges::find(holders, rank) - holders.begin());
    std::int32_t total = 0, own_begin = 0, own_end = 0;
    for (int source = 0; source < num_ranks(); ++source) {
      if (source == rank) own_begin = own_end = total;  // where they would stand
      if (holder(expert, source) != rank) continue;
      offsets_[index(source) * index(shape_.all_experts()) + index(expert)] = total;
      total += rows_of(source, expert);
      if (source == rank) own_end = total;
    }
    for (std::int64_t begin = 0; begin < total; begin += tiling_.block_rows) {  // the last step may pass 32 bits
      const auto first = static_cast<std::int32_t>(begin);
      blocks.push_back({expert, replica, first, std::min(tiling_.block_rows, total - first)});
      for (const auto& segment : segments(blocks.back())) {
        ++owned_blocks_[index(rank) * index(num_ranks()) + index(segment.source)];
      }
    }
    prefix.push_back(static_cast<std::int32_t>(blocks.size()));
    group_starts_[index(rank)].push_back(rotation_starts(own_begin, own_end, total, tiling_.block_rows));
  }
}

// First local experts of every rank first, as waves consume them, beginning with the next rank's so that no two ranks
// start on the same port.
void MoeProblem::order_dispatch(int rank) {
  std::vector<std::tuple<std::int32_t, std::int32_t, std::int32_t>> visits;  // (group, holder, expert)
  for (std::int32_t expert = 0; expert < shape_.all_experts(); ++expert) {
    visits.emplace_back(group_of(holder(expert, rank), expert), holder(expert, rank), expert);
  }
  std::ranges::sort(visits);
  for (auto begin = visits.begin(); begin != visits.end();) {
    const auto end =
        std::find_if(begin, visits.end(), [&](const auto& visit) { return std::get<0>(visit) != std::get<0>(*begin); });
    std::rotate(begin, begin + (rank + 1) % (end - begin), end);
    begin = end;
  }
  for (const auto& [group, holder, expert] : visits) dispatch_experts_[index(rank)].push_back(expert);
}

std::int32_t MoeProblem::group_of(int rank, std::int32_t expert) const {
  const auto local = local_experts(rank);
  return static_cast<std::int32_t>(std::ranges::lower_bound(local, expert) - local.begin());
}

std::int32_t MoeProblem::first_block(int rank, std::int32_t expert) const {
  return group_blocks_[index(rank)][index(group_of(rank, expert))];
}

std::int64_t MoeProblem::rows_received(int rank) const {
  const auto& blocks = blocks_[index(rank)];
  return std::accumulate(blocks.begin(), blocks.end(), std::int64_t{0},
                         [](std::int64_t sum, const MoeBlock& block) { return sum + block.num_rows; });
}

std::vector<MoeSegment> MoeProblem::segments(const MoeBlock& block) const {
  std::vector<MoeSegment> found;
  const std::int32_t block_end = block.first_row + block.num_rows;
  const auto num_replicas = static_cast<int>(experts_.holders(block.expert).size());
  for (int source = block.replica; source < num_ranks(); source += num_replicas) {  // ExpertMap's rule
    const std::int32_t begin = row_offset(source, block.expert);
    const std::int32_t first = std::max(begin, block.first_row);
    const std::int32_t end = std::min(begin + rows_of(source, block.expert), block_end);
    if (first < end) found.push_back({source, first - block.first_row, end - first, first - begin});
  }
  return found;
}

Counts MoeProblem::counts(int rank) const {
  Counts counts;
  counts.rank = rank;
  counts.num_ranks = num_ranks();
  counts.num_experts = shape_.all_experts();
  counts.dispatch_parts = tiling_.dispatch_parts;
  counts.num_groups = static_cast<std::int32_t>(local_experts(rank).size());
  counts.linear1_tiles = static_cast<std::int32_t>(ceil_div<std::int64_t>(shape_.intermediate, tiling_.linear1_cols));
  counts.linear2_tiles = static_cast<std::int32_t>(ceil_div<std::int64_t>(shape_.hidden, tiling_.linear2_cols));
  counts.num_reduce = static_cast<std::int32_t>(ceil_div<std::int64_t>(tokens_of(rank), tiling_.reduce_tokens));
  counts.group_blocks = group_blocks_[index(rank)].data();
  counts.group_starts = group_starts_[index(rank)].data();
  counts.dispatch_experts = dispatch_experts_[index(rank)].data();
  return counts;
}

MoeProblem MoeProblem::with_ring(int ring_blocks) const {
  MoeTiling tiling = tiling_;
  tiling.ring_blocks = ring_blocks;
  return {shape_, tiling, placement_, rows_};
}

std::int32_t MoeProblem::activation_slots() const {
  return static_cast<std::int32_t>(tiling_.activation_slots(max_blocks_));
}

std::vector<FlagGroup> MoeProblem::flags() const {
  std::vector<FlagGroup> flags{{"counted", counted(0), num_ranks()},
                               {"combined", combined(0), num_ranks()},
                               {"arrived", arrived(0), max_blocks_},
                               {"activated", activated(0), max_blocks_}};
  if (activation_slots() < max_blocks_) flags.push_back({"released", released(0), max_blocks_});
  return flags;
}

std::vector<Region> MoeProblem::regions() const {
  return {{"rows", max_blocks_}, {"activations", activation_slots(), true}, {"slots", num_ranks()}};
}

std::vector<std::int32_t> count_rows(const Routing& routing, int num_experts, std::int64_t first, std::int64_t end) {
  std::vector<std::int32_t> rows(static_cast<std::size_t>(num_experts));
  for (auto slot = first * routing.topk; slot < end * routing.topk; ++slot) {
    const auto expert = routing.expert[static_cast<std::size_t>(slot)];
    if (expert >= 0) ++rows[static_cast<std::size_t>(expert)];
  }
  return rows;
}

std::vector<std::int32_t> count_rows(const Routing& routing, int num_experts, std::span<const std::int64_t> tokens) {
  std::vector<std::int32_t> rows;
  std::int64_t first = 0;
  for (const auto count : tokens) {
    const auto of_rank = count_rows(routing, num_experts, first, first + count);
    rows.insert(rows.end(), of_rank.begin(), of_rank.end());
    first += count;
  }
  return rows;
}

MoeProblem make_problem(const MoeShape& shape, const MoeTiling& tiling, int num_ranks, const Routing& routing,
                        MoePlacement placement) {
  require(routing.topk == shape.topk, "routing: top-k {} expected, {} found", shape.topk, routing.topk);
  placement = complete(std::move(placement), shape, num_ranks, routing.num_tokens);
  auto rows = count_rows(routing, shape.num_experts, placement.tokens);
  return {shape, tiling, std::move(placement), std::move(rows)};
}

int default_experts_per_wave(const MoeProblem& problem, int num_sms) {
  const auto rows = std::accumulate(problem.rows().begin(), problem.rows().end(), std::int64_t{0});
  const std::int64_t experts = problem.shape().num_experts;
  int local = 0;
  for (int rank = 0; rank < problem.num_ranks(); ++rank) local = std::max(local, problem.counts(rank).num_groups);
  if (rows < experts) return local;
  const auto blocks = ceil_div(ceil_div(rows, experts), std::int64_t{problem.tiling().block_rows});
  const auto tiles = blocks * problem.counts(0).linear1_tiles;
  const auto least = static_cast<int>(std::min<std::int64_t>(ceil_div<std::int64_t>(2 * num_sms, tiles), local));
  if (tiles >= num_sms) return least;
  const auto in_last_wave = [&](std::int64_t wave) { return local % wave == 0 ? wave : local % wave; };
  int best = least;
  for (int wave = least + 1; wave <= std::min(2 * least, local); ++wave) {
    if (in_last_wave(wave) * best > in_last_wave(best) * wave) best = wave;
  }
  return best;
}

double rho(const MoeShape& shape, int num_ranks, double combine_bytes, double flops_per_ns, double drain_bytes_per_ns) {
  const double remote = static_cast<double>(num_ranks - 1) / num_ranks;
  return remote * combine_bytes * flops_per_ns / (2.0 * static_cast<double>(shape.intermediate) * drain_bytes_per_ns);
}

}  // namespace xs
