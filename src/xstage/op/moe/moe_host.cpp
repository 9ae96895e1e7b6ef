#include <algorithm>
#include <array>
#include <cstring>

#include "xstage/core/error.hpp"
#include "xstage/mem/run_ranks.hpp"
#include "xstage/op/host_product.hpp"
#include "xstage/op/moe/moe.hpp"
#include "xstage/plan/check.hpp"

namespace xs::moe {
namespace {

// Which slot of its owner a dispatched row belongs to.
struct RowOrigin {
  std::int32_t token;  // of the owner's tokens
  std::int32_t slot;
};

struct Regions {
  RegionId counts;   // [num_ranks, num_experts] int32, written by each source
  RegionId rows;     // [max_blocks * block_rows, hidden]
  RegionId origins;  // [max_blocks * block_rows] RowOrigin
  RegionId slots;    // [tokens of this rank, topk, hidden]
  RegionId output;   // [tokens of this rank, hidden]
  RegionId signals;
};

Regions reserve(Layout& layout, const MoeProblem& capacity) {
  const auto ranks = static_cast<std::size_t>(capacity.num_ranks());
  const auto hidden = static_cast<std::size_t>(capacity.shape().hidden);
  const auto rows =
      static_cast<std::size_t>(capacity.max_blocks()) * static_cast<std::size_t>(capacity.tiling().block_rows);
  const auto tokens = static_cast<std::size_t>(capacity.token_begin(1));  // the first rank holds the most
  const auto num_flags = capacity.flags().back().first + capacity.flags().back().count;
  return {layout.add("counts", ranks * static_cast<std::size_t>(capacity.shape().num_experts) * sizeof(std::int32_t)),
          layout.add("rows", rows * hidden * sizeof(float)),
          layout.add("origins", rows * sizeof(RowOrigin)),
          layout.add("slots", tokens * static_cast<std::size_t>(capacity.shape().topk) * hidden * sizeof(float)),
          layout.add("output", tokens * hidden * sizeof(float)),
          Signals::reserve(layout, num_flags, capacity.num_ranks())};
}

// One rank's layer. The methods named like task kinds are those tasks' bodies.
class HostLayer {
 public:
  HostLayer(const Inputs& inputs, const RunOptions& options, Rank rank, const Regions& regions, Signals& signals)
      : inputs_(inputs),
        options_(options),
        rank_(rank),
        regions_(regions),
        signals_(signals),
        problem_(exchange_counts()),
        tasks_(options.tasks.empty() ? expand(options.order, problem_.counts(rank.rank()))
                                     : options.tasks[static_cast<std::size_t>(rank.rank())]),
        uses_(activation_uses(tasks_, problem_.num_blocks(rank.rank()))),
        scratch_(static_cast<std::size_t>(options.host.workers_per_rank)) {
    const auto slots = std::min(problem_.num_blocks(rank.rank()), problem_.activation_slots());
    activations_.resize(static_cast<std::size_t>(std::int64_t{slots} * activations_of_slot()));
  }

  RankLog run() {
    const auto schedule = problem_.rank_schedule(rank_.rank(), tasks_);
    return run_schedule(schedule, rank_, signals_, options_.host, [&](const Task& task, int worker) {
      switch (task.kind) {
        case TaskKind::dispatch:
          return dispatch(task, scratch(worker));
        case TaskKind::linear1:
          return linear1(task, scratch(worker));
        case TaskKind::linear2:
          return linear2(task, scratch(worker));
        case TaskKind::reduce:
          return reduce(task);
        case TaskKind::tile:
          break;  // a layer has none
      }
    });
  }

 private:
  struct Scratch {
    std::vector<float> weights;  // a column tile at the edge, zero-padded
    std::vector<float> gate, up, tile;
    std::vector<float> rows;
    std::vector<RowOrigin> origins;
  };

  const MoeShape& shape() const { return inputs_.shape; }
  std::int64_t first_token() const { return split_begin(inputs_.num_tokens(), rank_.num_ranks(), rank_.rank()); }
  std::int64_t end_token() const { return split_begin(inputs_.num_tokens(), rank_.num_ranks(), rank_.rank() + 1); }
  Scratch& scratch(int worker) {
    use_one_thread_per_product();
    return scratch_[static_cast<std::size_t>(worker)];
  }

  std::int64_t activations_of_slot() const { return problem_.tiling().block_rows * shape().intermediate; }
  // [block_rows, intermediate]. In a ring, rows beyond the block's hold what an earlier block left there; no other row
  // of a product depends on them.
  float* activations(std::int32_t block) {
    const auto slot = uses_.use[static_cast<std::size_t>(block)] % problem_.activation_slots();
    return activations_.data() + slot * activations_of_slot();
  }

  // Every rank tells every rank how many rows it has for each expert; from then on all know the same problem.
  MoeProblem exchange_counts() {
    const auto experts = static_cast<std::size_t>(shape().num_experts);
    const auto all = rank_.local_as<std::int32_t>(regions_.counts);
    std::vector<std::int32_t> own(experts);
    for (auto i = first_token() * shape().topk; i < end_token() * shape().topk; ++i) {
      const auto expert = inputs_.routing.expert[static_cast<std::size_t>(i)];
      if (expert >= 0) ++own[static_cast<std::size_t>(expert)];
    }
    for (int peer = 0; peer < rank_.num_ranks(); ++peer) {
      rank_.put(peer, regions_.counts, static_cast<std::size_t>(rank_.rank()) * experts * sizeof(std::int32_t),
                std::as_bytes(std::span(own)));
      signals_.raise(peer, MoeProblem::counted(rank_.rank()), 1);
    }
    for (int peer = 0; peer < rank_.num_ranks(); ++peer) signals_.wait(MoeProblem::counted(peer), 1);
    return {shape(), options_.tiling, rank_.num_ranks(), inputs_.num_tokens(), {all.begin(), all.end()}};
  }

  void dispatch(const Task& task, Scratch& scratch) {
    const std::int32_t expert = task.block;
    const auto hidden = static_cast<std::size_t>(shape().hidden);
    scratch.rows.clear();
    scratch.origins.clear();
    for (auto token = first_token(); token < end_token(); ++token) {
      for (int slot = 0; slot < shape().topk; ++slot) {
        if (inputs_.routing.expert_at(token, slot) != expert) continue;
        const auto row = inputs_.token(token);
        scratch.rows.insert(scratch.rows.end(), row.begin(), row.end());
        scratch.origins.push_back({static_cast<std::int32_t>(token - first_token()), slot});
      }
    }
    if (scratch.origins.empty()) return;
    // An expert's row blocks lie next to each other, so its rows do, too.
    const auto first = static_cast<std::size_t>(problem_.first_block(expert) * problem_.tiling().block_rows +
                                                problem_.row_offset(rank_.rank(), expert));
    const int holder = problem_.rank_of_expert(expert);
    rank_.put(holder, regions_.rows, first * hidden * sizeof(float), std::as_bytes(std::span(scratch.rows)));
    rank_.put(holder, regions_.origins, first * sizeof(RowOrigin), std::as_bytes(std::span(scratch.origins)));
  }

  // Products always run at the full tile's shape; columns beyond the matrix are zero.
  const float* padded_columns(std::span<const float> matrix, std::int64_t first, std::int64_t num_cols, std::int64_t k,
                              std::int64_t num_matrix_cols, std::vector<float>& buffer) {
    const auto begin = matrix.begin() + first * k;
    if (first + num_cols <= num_matrix_cols) return &*begin;
    buffer.assign(static_cast<std::size_t>(num_cols * k), 0.0f);
    std::copy(begin, matrix.begin() + num_matrix_cols * k, buffer.begin());
    return buffer.data();
  }

  void linear1(const Task& task, Scratch& scratch) {
    const auto& tiling = problem_.tiling();
    const auto& block = problem_.block(rank_.rank(), task.block);
    const std::int64_t m = tiling.block_rows, n = tiling.linear1_cols, k = shape().hidden;
    const std::int64_t first_row = task.block * m, first_col = task.tile * n;
    const float* rows = rank_.local_as<float>(regions_.rows).data() + first_row * k;
    scratch.gate.resize(static_cast<std::size_t>(m * n));
    scratch.up.resize(static_cast<std::size_t>(m * n));
    const auto product = [&](std::span<const float> matrix, std::vector<float>& out) {
      host_product(m, n, k, rows, k, padded_columns(matrix, first_col, n, k, shape().intermediate, scratch.weights), k,
                   out.data(), n);
    };
    product(inputs_.gate(block.expert), scratch.gate);
    product(inputs_.up(block.expert), scratch.up);
    const auto num_cols = std::min(n, shape().intermediate - first_col);
    for (std::int64_t row = 0; row < block.num_rows; ++row) {
      float* out = activations(task.block) + row * shape().intermediate + first_col;
      for (std::int64_t col = 0; col < num_cols; ++col) {
        const auto i = static_cast<std::size_t>(row * n + col);
        out[col] = swiglu(scratch.gate[i], scratch.up[i]);
      }
    }
  }

  void linear2(const Task& task, Scratch& scratch) {
    const auto& tiling = problem_.tiling();
    const auto& block = problem_.block(rank_.rank(), task.block);
    const std::int64_t m = tiling.block_rows, n = tiling.linear2_cols, k = shape().intermediate;
    const std::int64_t first_row = task.block * m, first_col = task.tile * n;
    scratch.tile.resize(static_cast<std::size_t>(m * n));
    host_product(m, n, k, activations(task.block), k,
                 padded_columns(inputs_.down_of(block.expert), first_col, n, k, shape().hidden, scratch.weights), k,
                 scratch.tile.data(), n);
    const auto num_cols = static_cast<std::size_t>(std::min(n, shape().hidden - first_col));
    const auto origins = rank_.local_as<RowOrigin>(regions_.origins);
    for (const auto& segment : problem_.segments(block)) {
      for (std::int32_t row = segment.first; row < segment.first + segment.count; ++row) {
        const auto& origin = origins[static_cast<std::size_t>(first_row + row)];
        const auto slot = std::int64_t{origin.token} * shape().topk + origin.slot;
        const auto offset = static_cast<std::size_t>(slot * shape().hidden + first_col) * sizeof(float);
        rank_.put(segment.source, regions_.slots, offset,
                  std::as_bytes(std::span(scratch.tile).subspan(static_cast<std::size_t>(row * n), num_cols)));
      }
    }
  }

  // Slots are added in their order, whoever filled them first: the sum does not depend on the schedule.
  void reduce(const Task& task) {
    const auto output = rank_.local_as<float>(regions_.output);
    const auto hidden = static_cast<std::size_t>(shape().hidden);
    const auto slots = rank_.local_as<float>(regions_.slots);
    const auto first = first_token() + std::int64_t{task.block} * problem_.tiling().reduce_tokens;
    const auto end = std::min(first + problem_.tiling().reduce_tokens, end_token());
    for (auto token = first; token < end; ++token) {
      const auto out = output.subspan(static_cast<std::size_t>(token - first_token()) * hidden, hidden);
      std::ranges::fill(out, 0.0f);
      for (int slot = 0; slot < shape().topk; ++slot) {
        if (inputs_.routing.expert_at(token, slot) < 0) continue;
        const float weight = inputs_.routing.weight[static_cast<std::size_t>(token * shape().topk + slot)];
        const auto local = static_cast<std::size_t>((token - first_token()) * shape().topk + slot);
        const auto row = slots.subspan(local * hidden, hidden);
        for (std::size_t h = 0; h < hidden; ++h) out[h] += weight * row[h];
      }
    }
  }

  const Inputs& inputs_;
  const RunOptions& options_;
  Rank rank_;
  const Regions& regions_;
  Signals& signals_;
  MoeProblem problem_;
  std::vector<Task> tasks_;
  ActivationUses uses_;
  std::vector<float> activations_;  // [slots, block_rows, intermediate]
  std::vector<Scratch> scratch_;    // [worker]
};

// What ranks that write into each other's memory must have alike.
std::vector<Term> terms(const Inputs& inputs, const RunOptions& options) {
  const auto& shape = inputs.shape;
  const auto& tiling = options.tiling;
  return {{"hidden", std::to_string(shape.hidden)},
          {"intermediate", std::to_string(shape.intermediate)},
          {"experts", std::to_string(shape.num_experts)},
          {"top-k", std::to_string(shape.topk)},
          {"tokens", std::to_string(inputs.num_tokens())},
          {"tiles", fmt::format("{} x {}, {} x {}", tiling.block_rows, tiling.linear1_cols, tiling.block_rows,
                                tiling.linear2_cols)},
          {"repeats", std::to_string(options.host.repeats)}};
}

}  // namespace

RunResult run_on_host(const Inputs& inputs, const RunOptions& options) {
  require(options.host.workers_per_rank >= 1, "workers must be at least 1, found {}", options.host.workers_per_rank);
  require(options.host.repeats >= 1, "repeats must be at least 1, found {}", options.host.repeats);
  const auto capacity = make_problem(inputs.shape, options.tiling, options.num_ranks, inputs.routing);
  const auto schedule = options.tasks.empty() ? capacity.schedule(options.order) : capacity.schedule(options.tasks);
  require_valid(schedule, "moe");
  const auto flags = capacity.flags();

  Layout layout;
  const Regions regions = reserve(layout, capacity);
  std::size_t most_tasks = 0;
  for (const auto& rank : schedule.ranks) most_tasks = std::max(most_tasks, rank.tasks.size());
  const LogRegions logs(layout, most_tasks);
  const World world(layout, options.num_ranks, options.host.ranks_are);
  SignalOptions signal_options = options.host.signals;
  signal_options.flag_name = [&](int flag) { return flag_name(flags, flag); };

  run_ranks(world, [&](Rank rank) {
    Signals signals(rank, regions.signals, flags.back().first + flags.back().count, signal_options);
    try {
      signals.agree(terms(inputs, options));
      RankLog log;
      for (int repeat = 0; repeat < options.host.repeats; ++repeat) {
        log = HostLayer(inputs, options, rank, regions, signals).run();
        signals.close_epoch();
      }
      logs.write(rank, log);
    } catch (const std::exception& error) {
      signals.abort(error.what());
      throw;
    }
  });

  RunResult result;
  result.timeline.num_ranks = options.num_ranks;
  result.timeline.workers_per_rank = options.host.workers_per_rank;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    const auto num_tokens = capacity.token_begin(rank + 1) - capacity.token_begin(rank);
    const auto output = world.rank(rank).local_as<float>(regions.output);
    result.output.insert(result.output.end(), output.begin(), output.begin() + num_tokens * inputs.shape.hidden);
    auto log = logs.read(world.rank(rank));
    for (const auto& span : log.spans) result.timeline.makespan = max(result.timeline.makespan, span.end);
    result.timeline.spans.insert(result.timeline.spans.end(), log.spans.begin(), log.spans.end());
    result.executed.push_back(std::move(log.executed));
  }
  return result;
}

}  // namespace xs::moe
