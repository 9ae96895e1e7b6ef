#include <algorithm>
#include <numeric>

#include "xstage/core/error.hpp"
#include "xstage/mem/run_ranks.hpp"
#include "xstage/op/host_product.hpp"
#include "xstage/op/moe/moe.hpp"
#include "xstage/plan/check.hpp"

namespace xs::moe {
namespace {

// One rank's layer. The methods named like task kinds are those tasks' bodies.
class HostLayer {
 public:
  HostLayer(const Inputs& inputs, const RunOptions& options, Rank rank, const Workspace& workspace, Signals& signals)
      : inputs_(inputs),
        options_(options),
        rank_(rank),
        workspace_(workspace),
        signals_(signals),
        problem_(exchange_counts()),
        tasks_(options.tasks.empty() ? expand(options.order, problem_.counts(rank.rank()))
                                     : options.tasks[static_cast<std::size_t>(rank.rank())]),
        uses_(activation_uses(tasks_, problem_.num_blocks(rank.rank()))),
        scratch_(static_cast<std::size_t>(options.host.workers_per_rank)) {
    require_capacity(problem_, workspace.capacity);
  }

  RankLog run(std::span<float> output) {
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
          return reduce(task, output);
        case TaskKind::tile:
          break;  // a layer has none
      }
    });
  }

 private:
  struct Scratch {
    std::vector<float> weights;  // of a column tile: widened, zero-padded at the edge
    std::vector<float> rows;     // of a block, widened
    std::vector<float> gate, up, tile;
    std::vector<std::byte> dispatched;
    std::vector<RowOrigin> origins;
  };

  const MoeShape& shape() const { return inputs_.shape; }
  std::int64_t first_token() const { return problem_.token_begin(rank_.rank()); }
  std::int64_t end_token() const { return problem_.token_begin(rank_.rank() + 1); }
  Scratch& scratch(int worker) {
    use_one_thread_per_product();
    return scratch_[static_cast<std::size_t>(worker)];
  }

  // [block_rows, intermediate]. In a ring, rows beyond the block's hold what an earlier block left there; no other row
  // of a product depends on them.
  float* activations(std::int32_t block) {
    const auto slot = uses_.use[static_cast<std::size_t>(block)] % problem_.activation_slots();
    return rank_.local_as<float>(workspace_.activations).data() +
           slot * problem_.tiling().block_rows * shape().intermediate;
  }

  // Every rank tells every rank how many rows it has for each expert; from then on all know the same problem.
  MoeProblem exchange_counts() {
    auto placement = complete(options_.placement, shape(), rank_.num_ranks(), inputs_.num_tokens());
    const auto experts = static_cast<std::size_t>(shape().num_experts);
    const auto all = rank_.local_as<std::int32_t>(workspace_.counts);
    const auto first =
        std::accumulate(placement.tokens.begin(), placement.tokens.begin() + rank_.rank(), std::int64_t{0});
    const auto own = count_rows(inputs_.routing, shape().num_experts, first,
                                first + placement.tokens[static_cast<std::size_t>(rank_.rank())]);
    for (int peer = 0; peer < rank_.num_ranks(); ++peer) {
      rank_.put(peer, workspace_.counts, static_cast<std::size_t>(rank_.rank()) * experts * sizeof(std::int32_t),
                std::as_bytes(std::span(own)));
      signals_.raise(peer, MoeProblem::counted(rank_.rank()), 1);
    }
    for (int peer = 0; peer < rank_.num_ranks(); ++peer) signals_.wait(MoeProblem::counted(peer), 1);
    return {shape(), options_.tiling, std::move(placement), {all.begin(), all.end()}};
  }

  void dispatch(const Task& task, Scratch& scratch) {
    const std::int32_t expert = task.block;
    const int holder = problem_.holder(expert, rank_.rank());
    const auto [part, count] = problem_.part_of_rows(rank_.rank(), task);
    scratch.dispatched.clear();
    scratch.origins.clear();
    std::int32_t seen = 0;
    for (auto token = first_token(); token < end_token(); ++token) {
      for (int slot = 0; slot < shape().num_slots(); ++slot) {
        if (inputs_.expert_at(token, slot) != expert) continue;
        const auto index = seen++ - part;
        if (index < 0 || index >= count) continue;
        const auto row = inputs_.token(token).bytes();
        scratch.dispatched.insert(scratch.dispatched.end(), row.begin(), row.end());
        scratch.origins.push_back({static_cast<std::int32_t>(token - first_token()), slot});
      }
    }
    if (scratch.origins.empty()) return;
    // An expert's row blocks lie next to each other, so its rows do, too.
    const auto first = static_cast<std::size_t>(problem_.first_block(holder, expert) * problem_.tiling().block_rows +
                                                problem_.row_offset(rank_.rank(), expert) + part);
    rank_.put(holder, workspace_.rows, first * inputs_.token(first_token()).bytes().size(), scratch.dispatched);
    rank_.put(holder, workspace_.origins, first * sizeof(RowOrigin), std::as_bytes(std::span(scratch.origins)));
  }

  // Products always run at the full tile's shape; columns beyond the matrix are zero.
  const float* padded_columns(const TensorView& matrix, std::int64_t first, std::int64_t num_cols, std::int64_t k,
                              std::int64_t num_matrix_cols, std::vector<float>& buffer) {
    const auto num_valid = std::min(num_cols, num_matrix_cols - first);
    const auto columns = matrix.part(first * k, num_valid * k).floats(buffer);
    if (num_valid == num_cols) return columns.data();
    if (columns.data() != buffer.data()) buffer.assign(columns.begin(), columns.end());
    buffer.resize(static_cast<std::size_t>(num_cols * k), 0.0f);
    return buffer.data();
  }

  void linear1(const Task& task, Scratch& scratch) {
    const auto& tiling = problem_.tiling();
    const auto& block = problem_.block(rank_.rank(), task.block);
    const std::int64_t m = tiling.block_rows, n = tiling.linear1_cols, k = shape().hidden;
    const std::int64_t first_col = task.tile * n;
    const TensorView all_rows(inputs_.dtype(), rank_.local(workspace_.rows));
    const auto rows = all_rows.part(task.block * m * k, m * k).floats(scratch.rows);
    scratch.gate.resize(static_cast<std::size_t>(m * n));
    scratch.up.resize(static_cast<std::size_t>(m * n));
    const auto product = [&](const TensorView& matrix, std::vector<float>& out) {
      host_product(m, n, k, rows.data(), k,
                   padded_columns(matrix, first_col, n, k, shape().intermediate, scratch.weights), k, out.data(), n);
    };
    product(inputs_.gate(block.expert), scratch.gate);
    product(inputs_.up(block.expert), scratch.up);
    const auto num_cols = std::min(n, shape().intermediate - first_col);
    for (std::int64_t row = 0; row < block.num_rows; ++row) {
      float* out = activations(task.block) + row * shape().intermediate + first_col;
      for (std::int64_t col = 0; col < num_cols; ++col) {
        const auto i = static_cast<std::size_t>(row * n + col);
        out[col] = swiglu(scratch.gate[i], scratch.up[i], inputs_.clamp);
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
    const auto origins = rank_.local_as<RowOrigin>(workspace_.origins);
    for (const auto& segment : problem_.segments(block)) {
      for (std::int32_t row = segment.first; row < segment.first + segment.count; ++row) {
        const auto& origin = origins[static_cast<std::size_t>(first_row + row)];
        const auto slot = std::int64_t{origin.token} * shape().num_slots() + origin.slot;
        const auto offset = static_cast<std::size_t>(slot * shape().hidden + first_col) * sizeof(float);
        rank_.put(segment.source, workspace_.slots, offset,
                  std::as_bytes(std::span(scratch.tile).subspan(static_cast<std::size_t>(row * n), num_cols)));
      }
    }
  }

  // Slots are added in their order, whoever filled them first: the sum does not depend on the schedule.
  void reduce(const Task& task, std::span<float> output) {
    const auto hidden = static_cast<std::size_t>(shape().hidden);
    const auto slots = rank_.local_as<float>(workspace_.slots);
    const auto first = first_token() + std::int64_t{task.block} * problem_.tiling().reduce_tokens;
    const auto end = std::min(first + problem_.tiling().reduce_tokens, end_token());
    for (auto token = first; token < end; ++token) {
      const auto out = output.subspan(static_cast<std::size_t>(token - first_token()) * hidden, hidden);
      std::ranges::fill(out, 0.0f);
      for (int slot = 0; slot < shape().num_slots(); ++slot) {
        if (inputs_.expert_at(token, slot) < 0) continue;
        const float weight = inputs_.weight_at(token, slot);
        const auto local = static_cast<std::size_t>((token - first_token()) * shape().num_slots() + slot);
        const auto row = slots.subspan(local * hidden, hidden);
        for (std::size_t h = 0; h < hidden; ++h) out[h] += weight * row[h];
      }
    }
  }

  const Inputs& inputs_;
  const RunOptions& options_;
  Rank rank_;
  const Workspace& workspace_;
  Signals& signals_;
  MoeProblem problem_;
  std::vector<Task> tasks_;
  ActivationUses uses_;
  std::vector<Scratch> scratch_;  // [worker]
};

// What ranks that write into each other's memory must have alike.
std::vector<Term> terms(const Inputs& inputs, const RunOptions& options, const MoeCapacity& capacity) {
  const auto& shape = inputs.shape;
  const auto& tiling = options.tiling;
  return {{"hidden", std::to_string(shape.hidden)},
          {"intermediate", std::to_string(shape.intermediate)},
          {"experts", std::to_string(shape.num_experts)},
          {"top-k", std::to_string(shape.topk)},
          {"shared experts", std::to_string(shape.num_shared)},
          {"dtype", to_string(inputs.dtype())},
          {"tokens", std::to_string(inputs.num_tokens())},
          {"capacity",
           fmt::format("{} tokens, {} rows, {} experts", capacity.tokens, capacity.rows, capacity.local_experts)},
          {"tiles", fmt::format("{} x {}, {} x {}", tiling.block_rows, tiling.linear1_cols, tiling.block_rows,
                                tiling.linear2_cols)},
          {"repeats", std::to_string(options.host.repeats)}};
}

}  // namespace

RankLog run_rank(const Inputs& inputs, const RunOptions& options, Rank rank, const Workspace& workspace,
                 Signals& signals, std::span<float> output) {
  return HostLayer(inputs, options, rank, workspace, signals).run(output);
}

RunResult run_on_host(const Inputs& inputs, const RunOptions& options) {
  require(options.host.workers_per_rank >= 1, "workers must be at least 1, found {}", options.host.workers_per_rank);
  require(options.host.repeats >= 1, "repeats must be at least 1, found {}", options.host.repeats);
  require_usable(inputs);
  const auto problem = make_problem(inputs.shape, options.tiling, options.num_ranks, inputs.routing, options.placement);
  const auto capacity = capacity_of(problem, options.capacity_rows);
  require_capacity(problem, capacity);
  const auto schedule = options.tasks.empty() ? problem.schedule(options.order) : problem.schedule(options.tasks);
  require_valid(schedule, "moe");
  const auto flags = problem.flags();
  std::size_t most_tasks = 0;
  for (const auto& rank : schedule.ranks) most_tasks = std::max(most_tasks, rank.tasks.size());

  Layout layout;
  const auto workspace =
      reserve_workspace(layout, inputs.shape, options.tiling, options.num_ranks, capacity, inputs.dtype());
  const std::size_t workspace_bytes = layout.total_bytes();
  // What the caller of run_ranks() gets back: [capacity.tokens, hidden], and what was done when.
  const auto outputs =
      layout.add("output", static_cast<std::size_t>(capacity.tokens * inputs.shape.hidden) * sizeof(float));
  const LogRegions logs(layout, most_tasks);
  const World world(layout, options.num_ranks, options.host.ranks_are, options.host.port);
  SignalOptions signal_options = options.host.signals;
  signal_options.flag_name = [&](int flag) { return flag_name(flags, flag); };

  run_ranks(world, [&](Rank rank) {
    Signals signals(rank, workspace.signals, workspace.num_flags, signal_options);
    try {
      signals.agree(terms(inputs, options, capacity));
      RankLog log;
      for (int repeat = 0; repeat < options.host.repeats; ++repeat) {
        log = run_rank(inputs, options, rank, workspace, signals, rank.local_as<float>(outputs));
        signals.close_epoch();
      }
      logs.write(rank, log);
    } catch (const std::exception& error) {
      signals.abort(error.what());
      throw;
    }
  });

  RunResult result;
  result.workspace_bytes = workspace_bytes;
  result.timeline.num_ranks = options.num_ranks;
  result.timeline.workers_per_rank = options.host.workers_per_rank;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    const auto num_tokens = problem.token_begin(rank + 1) - problem.token_begin(rank);
    const auto output = world.rank(rank).local_as<float>(outputs);
    result.output.insert(result.output.end(), output.begin(), output.begin() + num_tokens * inputs.shape.hidden);
    auto log = logs.read(world.rank(rank));
    for (const auto& span : log.spans) result.timeline.makespan = max(result.timeline.makespan, span.end);
    result.timeline.spans.insert(result.timeline.spans.end(), log.spans.begin(), log.spans.end());
    result.executed.push_back(std::move(log.executed));
  }
  return result;
}

}  // namespace xs::moe
