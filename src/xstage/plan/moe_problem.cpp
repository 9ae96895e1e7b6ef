#include "xstage/plan/moe_problem.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "xstage/core/csv.hpp"
#include "xstage/core/embedded.hpp"
#include "xstage/core/error.hpp"
#include "xstage/plan/ring.hpp"

namespace xs {
namespace {

// Far above any machine; what is made from a file stays in proportion to it.
constexpr int kMostRanks = 4096;
constexpr std::int64_t kMostSegments = std::int64_t{1} << 26;

enum MoeRegion : std::uint8_t { kRows, kActivations, kSlots };  // in the order of MoeProblem::regions()

}  // namespace

std::vector<MoeModel> list_moe_models() {
  const auto files = embedded_files();
  const auto file = std::ranges::find(files, "moe_models.csv", &EmbeddedFile::name);
  check(file != files.end(), "moe_models.csv is not embedded");
  const auto csv = Csv::parse(std::string(file->text), "moe_models.csv");
  const auto name = csv.column("name"), hidden = csv.column("hidden"), intermediate = csv.column("intermediate"),
             experts = csv.column("experts"), topk = csv.column("topk"), shared = csv.column("shared"),
             doubt = csv.column("check");
  std::vector<MoeModel> models;
  for (std::size_t row = 0; row < csv.num_rows(); ++row) {
    const MoeShape shape{csv.integer(row, hidden, 1), csv.integer(row, intermediate, 1),
                         static_cast<int>(csv.integer(row, experts, 1)), static_cast<int>(csv.integer(row, topk, 1))};
    models.push_back({std::string(csv.text(row, name)), shape, static_cast<int>(csv.integer(row, shared, 0)),
                      csv.text(row, doubt).empty()});
  }
  return models;
}

MoeModel find_moe_model(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& model : list_moe_models()) {
    if (model.name == name) return model;
    names.push_back(model.name);
  }
  fail(ErrorKind::usage, "model {}: unknown; expected one of {}", name, fmt::join(names, ", "));
}

MoeShape shrink(const MoeShape& shape, int factor) {
  require(factor >= 1, "shrink must be at least 1, found {}", factor);
  require(shape.hidden % factor == 0 && shape.intermediate % factor == 0,
          "shrink {} does not divide hidden {} and intermediate {}; try a power of two", factor, shape.hidden,
          shape.intermediate);
  return {shape.hidden / factor, shape.intermediate / factor, shape.num_experts, shape.topk};
}

MoeProblem::MoeProblem(const MoeShape& shape, const MoeTiling& tiling, int num_ranks, std::int64_t num_tokens,
                       std::vector<std::int32_t> rows)
    : shape_(shape), tiling_(tiling), num_ranks_(num_ranks), num_tokens_(num_tokens), rows_(std::move(rows)) {
  require(shape.hidden >= 1 && shape.intermediate >= 1 && shape.num_experts >= 1 && shape.topk >= 1,
          "MoE shape: hidden, intermediate, experts and top-k must be at least 1");
  require(tiling.block_rows >= 1 && tiling.linear1_cols >= 1 && tiling.linear2_cols >= 1 && tiling.reduce_tokens >= 1,
          "MoE tiling: every tile extent must be at least 1");
  require(tiling.ring_blocks >= 0, "MoE tiling: ring blocks must be at least 1, or 0 for no ring; found {}",
          tiling.ring_blocks);
  require(num_ranks >= 1 && num_tokens >= 0, "ranks must be at least 1 and tokens at least 0, found {} and {}",
          num_ranks, num_tokens);
  require(num_ranks <= kMostRanks, "ranks must be at most {}, found {}", kMostRanks, num_ranks);
  require(rows_.size() == index(num_ranks) * index(shape.num_experts),
          "row counts: {} expected ({} ranks x {} experts), {} found", index(num_ranks) * index(shape.num_experts),
          num_ranks, shape.num_experts, rows_.size());
  require(std::ranges::all_of(rows_, [](auto count) { return count >= 0; }), "row counts must not be negative");
  const auto num_rows = std::accumulate(rows_.begin(), rows_.end(), std::int64_t{0});
  require(std::in_range<std::int32_t>(num_rows), "row counts: their sum {} is more than 32 bits count", num_rows);

  // Each expert may end in a block that is not full.
  const auto most_segments = (num_rows / tiling.block_rows + shape.num_experts) * num_ranks;
  require(most_segments <= kMostSegments,
          "{} rows in blocks of {} from {} ranks may make {} segments, more than {}; take larger blocks", num_rows,
          tiling.block_rows, num_ranks, most_segments, kMostSegments);

  offsets_.resize(rows_.size());
  blocks_.resize(index(num_ranks));
  group_blocks_.resize(index(num_ranks));
  group_starts_.resize(index(num_ranks));
  owned_blocks_.resize(index(num_ranks) * index(num_ranks));
  for (int rank = 0; rank < num_ranks; ++rank) {
    auto& blocks = blocks_[index(rank)];
    auto& prefix = group_blocks_[index(rank)];
    prefix.push_back(0);
    for (std::int32_t expert = expert_begin(rank); expert < expert_begin(rank + 1); ++expert) {
      std::int32_t total = 0;
      for (int source = 0; source < num_ranks; ++source) {
        offsets_[cell(source, expert)] = total;
        total += rows_of(source, expert);
      }
      for (std::int64_t begin = 0; begin < total; begin += tiling.block_rows) {  // the last step may pass 32 bits
        const auto first = static_cast<std::int32_t>(begin);
        blocks.push_back({expert, first, std::min(tiling.block_rows, total - first)});
        for (const auto& segment : segments(blocks.back())) {
          ++owned_blocks_[index(rank) * index(num_ranks) + index(segment.source)];
        }
      }
      prefix.push_back(static_cast<std::int32_t>(blocks.size()));
      const std::int32_t own = row_offset(rank, expert);
      group_starts_[index(rank)].push_back(rotation_starts(own, own + rows_of(rank, expert), total, tiling.block_rows));
    }
    max_blocks_ = std::max(max_blocks_, num_blocks(rank));
  }
}

int MoeProblem::rank_of_expert(std::int32_t expert) const {
  // The first ranks hold the remainder, so this guess is never too low.
  int rank = static_cast<int>(std::int64_t{expert} * num_ranks_ / shape_.num_experts);
  while (expert < expert_begin(rank)) --rank;
  return rank;
}

std::int32_t MoeProblem::first_block(std::int32_t expert) const {
  const int rank = rank_of_expert(expert);
  return group_blocks_[index(rank)][index(expert - expert_begin(rank))];
}

std::vector<MoeSegment> MoeProblem::segments(const MoeBlock& block) const {
  std::vector<MoeSegment> found;
  const std::int32_t block_end = block.first_row + block.num_rows;
  for (int source = 0; source < num_ranks_; ++source) {
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
  counts.num_ranks = num_ranks_;
  counts.num_experts = shape_.num_experts;
  counts.num_groups = expert_begin(rank + 1) - expert_begin(rank);
  counts.linear1_tiles = static_cast<std::int32_t>(ceil_div<std::int64_t>(shape_.intermediate, tiling_.linear1_cols));
  counts.linear2_tiles = static_cast<std::int32_t>(ceil_div<std::int64_t>(shape_.hidden, tiling_.linear2_cols));
  counts.num_reduce = static_cast<std::int32_t>(
      ceil_div<std::int64_t>(token_begin(rank + 1) - token_begin(rank), tiling_.reduce_tokens));
  counts.group_blocks = group_blocks_[index(rank)].data();
  counts.group_starts = group_starts_[index(rank)].data();
  return counts;
}

MoeProblem MoeProblem::with_ring(int ring_blocks) const {
  MoeTiling tiling = tiling_;
  tiling.ring_blocks = ring_blocks;
  return {shape_, tiling, num_ranks_, num_tokens_, rows_};
}

std::int32_t MoeProblem::activation_slots() const {
  return tiling_.ring_blocks == 0 ? max_blocks_ : std::min(tiling_.ring_blocks, max_blocks_);
}

std::vector<FlagGroup> MoeProblem::flags() const {
  std::vector<FlagGroup> flags{{"counted", counted(0), num_ranks_},
                               {"combined", combined(0), num_ranks_},
                               {"arrived", arrived(0), max_blocks_},
                               {"activated", activated(0), max_blocks_}};
  if (activation_slots() < max_blocks_) flags.push_back({"released", released(0), max_blocks_});
  return flags;
}

std::vector<Region> MoeProblem::regions() const {
  return {{"rows", max_blocks_}, {"activations", activation_slots(), true}, {"slots", num_ranks_}};
}

ActivationUses activation_uses(std::span<const Task> tasks, std::int32_t num_blocks) {
  ActivationUses uses{{}, std::vector<std::int32_t>(static_cast<std::size_t>(num_blocks), -1)};
  const auto take_slot = [&](std::int32_t block) {
    auto& use = uses.use[static_cast<std::size_t>(block)];
    if (use >= 0) return;
    use = static_cast<std::int32_t>(uses.block.size());
    uses.block.push_back(block);
  };
  for (const Task& task : tasks) {
    if (task.kind == TaskKind::linear1 && task.block >= 0 && task.block < num_blocks) take_slot(task.block);
  }
  for (std::int32_t block = 0; block < num_blocks; ++block) take_slot(block);
  return uses;
}

std::int32_t ring_bound(std::span<const Task> tasks, std::int32_t num_blocks) {
  const auto order = activation_uses(tasks, num_blocks);
  std::vector<RingUse> uses(order.block.size(), {static_cast<std::int64_t>(tasks.size()), 0});
  for (std::size_t claim = 0; claim < tasks.size(); ++claim) {
    const Task& task = tasks[claim];
    const bool touches = task.kind == TaskKind::linear1 || task.kind == TaskKind::linear2;
    if (!touches || task.block < 0 || task.block >= num_blocks) continue;
    auto& use = uses[static_cast<std::size_t>(order.use[static_cast<std::size_t>(task.block)])];
    use.first = std::min(use.first, static_cast<std::int64_t>(claim));
    use.last = static_cast<std::int64_t>(claim);
  }
  return ring_bound(uses);
}

RankSchedule MoeProblem::rank_schedule(int rank, std::vector<Task> tasks, const MoeBytes& bytes) const {
  const Counts own = counts(rank);
  const auto uses = activation_uses(tasks, own.num_blocks());
  RankSchedule schedule;
  schedule.grids = {{TaskKind::dispatch, own.num_experts, 1},
                    {TaskKind::linear1, own.num_blocks(), own.linear1_tiles},
                    {TaskKind::linear2, own.num_blocks(), own.linear2_tiles},
                    {TaskKind::reduce, own.num_reduce, 1},
                    {TaskKind::tile, 0, 0}};
  schedule.work.reserve(tasks.size());
  for (const Task& task : tasks) {
    const TileGrid& grid = schedule.grids[static_cast<std::size_t>(task.kind)];
    // A task outside its grid has no effects; the checker names it.
    const bool inside = task.block >= 0 && task.block < grid.num_blocks && task.tile >= 0 && task.tile < grid.num_tiles;
    if (inside) {
      append_effects(rank, task, uses, bytes, schedule);
    } else {
      schedule.work.push_back({0, 0});
    }
    schedule.end_rows();
  }
  schedule.tasks = std::move(tasks);
  return schedule;
}

// The one place that knows what an MoE task waits for, reads, writes, sends and publishes.
void MoeProblem::append_effects(int rank, const Task& task, const ActivationUses& uses, const MoeBytes& bytes,
                                RankSchedule& out) const {
  const Counts own = counts(rank);
  const double hidden = static_cast<double>(shape_.hidden);
  const double intermediate = static_cast<double>(shape_.intermediate);
  const auto weight_share = [&](const MoeBlock& of, double elements) {
    // Row blocks of one expert run close together, so its weights come from memory once.
    const auto group = of.expert - expert_begin(rank);
    return elements * bytes.weight / (own.group_blocks[group + 1] - own.group_blocks[group]);
  };
  // Columns of a tile that are not padding.
  const auto valid_cols = [&](int tile_cols, std::int64_t num_cols) {
    return static_cast<double>(std::min<std::int64_t>(tile_cols, num_cols - std::int64_t{task.tile} * tile_cols));
  };
  const auto reads = [&](MoeRegion region, std::int32_t slot, std::int32_t generation = 0) {
    out.accesses.append({rank, slot, generation, region, AccessMode::read});
  };
  const auto writes = [&](int to, MoeRegion region, std::int32_t slot, std::int32_t generation = 0) {
    out.accesses.append({to, slot, generation, region, AccessMode::write});
  };
  const auto slots = activation_slots();
  switch (task.kind) {
    case TaskKind::dispatch: {
      const std::int32_t expert = task.block;
      const std::int32_t count = rows_of(rank, expert);
      const int holder = rank_of_expert(expert);
      out.work.push_back({0, count * hidden * bytes.dispatch});
      if (count == 0) return;
      out.sends.append({holder, static_cast<std::int64_t>(count * hidden * bytes.dispatch)});
      // The rows may straddle row blocks of the expert.
      const std::int32_t begin = row_offset(rank, expert);
      for (std::int32_t row = begin; row < begin + count;) {
        const std::int32_t in_expert = row / tiling_.block_rows;
        const std::int32_t end = row + std::min(begin + count - row, tiling_.block_rows - row % tiling_.block_rows);
        writes(holder, kRows, first_block(expert) + in_expert);
        out.raises.append({holder, arrived(first_block(expert) + in_expert), end - row});
        row = end;
      }
      return;
    }
    case TaskKind::linear1: {
      const MoeBlock& of = block(rank, task.block);
      const double valid = valid_cols(tiling_.linear1_cols, shape_.intermediate);
      out.work.push_back(
          {2.0 * tiling_.block_rows * hidden * 2.0 * tiling_.linear1_cols, weight_share(of, hidden * 2.0 * valid)});
      const auto use = uses.use[index(task.block)];
      out.waits.append({arrived(task.block), of.num_rows});
      if (use >= slots) out.waits.append({released(uses.block[index(use - slots)]), own.linear2_tiles});
      reads(kRows, task.block);
      writes(rank, kActivations, use % slots, use / slots);
      out.raises.append({rank, activated(task.block), 1});
      return;
    }
    case TaskKind::linear2: {
      const MoeBlock& of = block(rank, task.block);
      const double valid = valid_cols(tiling_.linear2_cols, shape_.hidden);
      out.work.push_back(
          {2.0 * tiling_.block_rows * intermediate * tiling_.linear2_cols, weight_share(of, intermediate * valid)});
      const auto use = uses.use[index(task.block)];
      out.waits.append({activated(task.block), own.linear1_tiles});
      reads(kActivations, use % slots, use / slots);
      reads(kRows, task.block);  // where they came from
      if (use + slots < own.num_blocks()) out.raises.append({rank, released(task.block), 1});
      for (const auto& segment : segments(of)) {
        out.sends.append({segment.source, static_cast<std::int64_t>(segment.count * valid * bytes.combine)});
        writes(segment.source, kSlots, rank);
        out.raises.append({segment.source, combined(rank), 1});
      }
      return;
    }
    case TaskKind::reduce: {
      const std::int64_t first = std::int64_t{task.block} * tiling_.reduce_tokens;
      const std::int64_t tokens =
          std::min<std::int64_t>(tiling_.reduce_tokens, token_begin(rank + 1) - token_begin(rank) - first);
      const double elements = static_cast<double>(tokens) * shape_.topk * hidden;
      out.work.push_back({0, elements * bytes.combine});
      for (int peer = 0; peer < num_ranks_; ++peer) {
        const std::int64_t tiles =
            std::int64_t{owned_blocks_[index(peer) * index(num_ranks_) + index(rank)]} * own.linear2_tiles;
        if (tiles == 0) continue;
        out.waits.append({combined(peer), tiles});
        reads(kSlots, peer);
      }
      return;
    }
    case TaskKind::tile:
      return;  // a layer has none
  }
}

Schedule MoeProblem::schedule(const Order& order, const MoeBytes& bytes) const {
  Schedule schedule{flags(), regions(), {}};
  for (int rank = 0; rank < num_ranks_; ++rank) {
    schedule.ranks.push_back(rank_schedule(rank, expand(order, counts(rank)), bytes));
  }
  return schedule;
}

Schedule MoeProblem::schedule(const std::vector<std::vector<Task>>& tasks, const MoeBytes& bytes) const {
  require(tasks.size() == index(num_ranks_), "schedule: {} ranks expected, {} found", num_ranks_, tasks.size());
  Schedule schedule{flags(), regions(), {}};
  for (int rank = 0; rank < num_ranks_; ++rank) {
    schedule.ranks.push_back(rank_schedule(rank, tasks[index(rank)], bytes));
  }
  return schedule;
}

std::vector<std::int32_t> count_rows(const Routing& routing, int num_experts, int num_ranks) {
  std::vector<std::int32_t> rows(static_cast<std::size_t>(num_ranks) * static_cast<std::size_t>(num_experts));
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto end = split_begin(routing.num_tokens, num_ranks, rank + 1) * routing.topk;
    for (auto i = split_begin(routing.num_tokens, num_ranks, rank) * routing.topk; i < end; ++i) {
      const auto expert = routing.expert[static_cast<std::size_t>(i)];
      if (expert < 0) continue;
      ++rows[static_cast<std::size_t>(rank) * static_cast<std::size_t>(num_experts) + static_cast<std::size_t>(expert)];
    }
  }
  return rows;
}

MoeProblem make_problem(const MoeShape& shape, const MoeTiling& tiling, int num_ranks, const Routing& routing) {
  require(routing.topk == shape.topk, "routing: top-k {} expected, {} found", shape.topk, routing.topk);
  return {shape, tiling, num_ranks, routing.num_tokens, count_rows(routing, shape.num_experts, num_ranks)};
}

int default_experts_per_wave(const MoeProblem& problem, int num_sms) {
  const auto rows = std::accumulate(problem.rows().begin(), problem.rows().end(), std::int64_t{0});
  const std::int64_t experts = problem.shape().num_experts;
  const auto local = ceil_div(problem.shape().num_experts, problem.num_ranks());
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
