#include "xstage/op/moe/gpu_layer.hpp"

#include <algorithm>
#include <limits>

#include "xstage/core/error.hpp"
#include "xstage/mem/residency.hpp"
#include "xstage/tile/tensor_map.hpp"

namespace xs::moe {
namespace {

constexpr std::size_t kElement = 2;  // bytes of bf16

std::size_t bytes_of(std::int64_t count, std::int64_t width = 1, std::size_t element = kElement) {
  return static_cast<std::size_t>(std::max<std::int64_t>(count, 1) * width) * element;
}

std::int64_t blocks_of(const MoeProblem& problem, int rank) { return std::max(problem.num_blocks(rank), 1); }

// Arrays of a plan, one behind the other in one buffer.
class Arrays {
 public:
  template <class T>
  void add(const std::vector<T>& values, const T*& place) {
    const auto bytes = std::as_bytes(std::span(values));
    places_.push_back({reinterpret_cast<const std::byte**>(&place), bytes_.size()});
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    bytes_.resize(ceil_div<std::size_t>(bytes_.size(), 16) * 16 + 16);
  }
  // Copies all and sets every place.
  GpuMemory on(int device) const {
    GpuMemory memory(device, GpuPlace::own, bytes_.size());
    memory.write(0, bytes_);
    for (const auto& [place, offset] : places_) *place = memory.data() + offset;
    return memory;
  }

 private:
  struct Place {
    const std::byte** pointer;
    std::size_t offset;
  };
  std::vector<Place> places_;
  std::vector<std::byte> bytes_;
};

template <class T>
std::vector<T> copy_of(const T* values, std::size_t count) {
  return {values, values + count};
}

SignalOptions with_names(SignalOptions options, int blocks) {
  options.flag_name = [blocks](int flag) {
    return flag < blocks ? fmt::format("activated[{}]", flag) : fmt::format("combined[{}]", flag - blocks);
  };
  return options;
}

// Calls `each(token of the source, slot, expert)` for everything that the source sends, in the order of its tokens.
template <class Each>
void for_each_slot(const MoeProblem& problem, const Routing& routing, int source, Each each) {
  const auto& shape = problem.shape();
  for (std::int64_t token = 0; token < problem.tokens_of(source); ++token) {
    for (int slot = 0; slot < shape.num_slots(); ++slot) {
      const auto expert = slot < shape.topk ? routing.expert_at(problem.token_begin(source) + token, slot)
                                            : shape.num_experts + slot - shape.topk;
      each(token, slot, expert);
    }
  }
}

// The same with the row, among all of the holder's blocks, that each goes to.
template <class Each>
void for_each_row(const MoeProblem& problem, const Routing& routing, int source, Each each) {
  std::vector<std::int32_t> sent(static_cast<std::size_t>(problem.shape().all_experts()));
  for_each_slot(problem, routing, source, [&](std::int64_t token, int slot, std::int32_t expert) {
    if (expert < 0) return;
    const int holder = problem.holder(expert, source);
    const auto row = std::int64_t{problem.first_block(holder, expert)} * kGpuTiling.block_rows +
                     problem.row_offset(source, expert) + sent[static_cast<std::size_t>(expert)]++;
    each(token, slot, holder, row);
  });
}

}  // namespace

GpuLayer::Regions::Regions(const MoeProblem& problem)
    : signals(GpuSignals::reserve(flags, problem.max_blocks() + problem.num_ranks(), problem.num_ranks())),
      combine_slots{},
      num_flags(problem.max_blocks() + problem.num_ranks()) {
  require(problem.num_ranks() <= kMostParts, "{} virtual ranks: a GPU runs up to {}", problem.num_ranks(), kMostParts);
  std::int64_t tokens = 1;
  for (int rank = 0; rank < problem.num_ranks(); ++rank) tokens = std::max(tokens, problem.tokens_of(rank));
  combine_slots = slots.add("slots", bytes_of(tokens * problem.shape().num_slots(), problem.shape().hidden));
}

RankMemory GpuLayer::make_memory(int rank) const {
  const auto& shape = problem_.shape();
  const int device = flag_world_.device();
  const auto rows = blocks_of(problem_, rank) * kGpuTiling.block_rows;
  const auto experts = static_cast<std::int64_t>(problem_.local_experts(rank).size());
  const auto own = [&](std::size_t bytes) { return GpuMemory(device, GpuPlace::own, bytes); };
  const auto stamps = stamps_ ? problem_.counts(rank).num_tasks() : 1;
  return {own(bytes_of(rows, shape.hidden)),
          own(bytes_of(experts, 2 * shape.intermediate * shape.hidden)),
          own(bytes_of(experts, shape.hidden * shape.intermediate)),
          own(bytes_of(rows, shape.intermediate)),
          own(bytes_of(problem_.tokens_of(rank), shape.hidden)),
          own(bytes_of(rows, 1, sizeof(RowTag))),
          own(16),
          own(bytes_of(stamps, 1, sizeof(TaskStamp))),
          own(sizeof(std::uint64_t))};
}

GpuLayer::GpuLayer(const MoeProblem& problem, const Routing& routing, const GpuRunOptions& options)
    : problem_(problem),
      stamps_(options.stamps),
      regions_(problem),
      flag_world_(regions_.flags, problem.num_ranks(), options.device, GpuPlace::own),
      slot_world_(regions_.slots, problem.num_ranks(), options.device, options.receive),
      signals_(flag_world_, regions_.signals, regions_.num_flags, with_names(options.signals, problem.max_blocks())) {
  const auto& shape = problem.shape();
  for (int rank = 0; rank < problem.num_ranks(); ++rank) {
    most_groups_ = std::max(most_groups_, static_cast<int>(problem.local_experts(rank).size()));
  }
  const auto needs = layer_kernel_needs(most_groups_);
  auto grid = residency_of(options.device, needs.kernel, "moe", 0, needs.threads, needs.shared_bytes);
  const int sms_per_rank = options.sms_per_rank > 0 ? options.sms_per_rank : grid.num_sms / problem.num_ranks();
  num_blocks_ = grid.num_blocks = sms_per_rank * problem.num_ranks();
  require_resident(grid);
  params_.num_parts = problem.num_ranks();
  params_.tables = signals_.tables();
  params_.slot_parts = slot_world_.rank(0).parts;
  params_.slots = slot_world_.layout().offset(regions_.combine_slots);
  params_.hidden = static_cast<std::int32_t>(shape.hidden);
  params_.intermediate = static_cast<std::int32_t>(shape.intermediate);
  params_.num_slots = shape.num_slots();
  params_.activated = 0;
  params_.combined = problem.max_blocks();
  params_.order = options.order;
  params_.claim = options.claim;
  params_.clamp = options.clamp > 0 ? static_cast<float>(options.clamp) : std::numeric_limits<float>::infinity();
  for (int rank = 0; rank < problem.num_ranks(); ++rank) {
    memory_.push_back(make_memory(rank));
    plan_rank(rank, routing, options);
  }
}

void GpuLayer::plan_rank(int rank, const Routing& routing, const GpuRunOptions& options) {
  const auto& shape = problem_.shape();
  auto& memory = memory_[static_cast<std::size_t>(rank)];
  auto& layer = params_.ranks[rank];
  const auto rows = blocks_of(problem_, rank) * kGpuTiling.block_rows;
  const auto experts = static_cast<std::int64_t>(problem_.local_experts(rank).size());
  constexpr int kBoxRows = 128;
  layer.rows = map_matrix(memory.rows.data(), rows, shape.hidden, kBoxRows);
  layer.gate_up = map_matrix(memory.gate_up.data(), std::max<std::int64_t>(experts, 1) * 2 * shape.intermediate,
                             shape.hidden, kBoxRows);
  layer.activations = map_matrix(memory.activations.data(), rows, shape.intermediate, kBoxRows);
  layer.down =
      map_matrix(memory.down.data(), std::max<std::int64_t>(experts, 1) * shape.hidden, shape.intermediate, kBoxRows);
  layer.activation_rows = memory.activations.data();
  layer.output = memory.output.data();
  layer.num_tokens = static_cast<std::int32_t>(problem_.tokens_of(rank));
  layer.next_claim = reinterpret_cast<std::uint64_t*>(memory.next_claim.data());
  layer.stamps = stamps_ ? reinterpret_cast<TaskStamp*>(memory.stamps.data()) : nullptr;

  // What comes back to this rank, by holder; with RowsTo::own it is its own rows in any slots.
  std::vector<std::int32_t> rows_by_holder(static_cast<std::size_t>(problem_.num_ranks()));
  std::vector<RowTag> tags(static_cast<std::size_t>(rows), RowTag{-1, 0});
  const auto own_slots = std::max<std::int64_t>(problem_.tokens_of(rank), 1) * shape.num_slots();
  for (int source = 0; source < problem_.num_ranks() && options.rows_to != RowsTo::nowhere; ++source) {
    const bool to_owners = options.rows_to == RowsTo::owners;
    for_each_row(problem_, routing, source, [&](std::int64_t token, int slot, int holder, std::int64_t row) {
      if (source == rank && to_owners) ++rows_by_holder[static_cast<std::size_t>(holder)];
      if (holder != rank) return;
      if (!to_owners) ++rows_by_holder[static_cast<std::size_t>(rank)];
      const auto slot_of_owner = to_owners ? token * shape.num_slots() + slot : row % own_slots;
      tags[static_cast<std::size_t>(row)] = {to_owners ? source : rank, static_cast<std::int32_t>(slot_of_owner)};
    });
  }
  memory.tags.write(0, std::as_bytes(std::span(tags)));
  layer.tags = reinterpret_cast<const RowTag*>(memory.tags.data());

  const Counts counts = problem_.counts(rank);
  layer.counts = counts;
  const auto groups = static_cast<std::size_t>(counts.num_groups);
  std::vector<std::int32_t> slot_experts;
  std::vector<float> slot_weights;
  for_each_slot(problem_, routing, rank, [&](std::int64_t token, int slot, std::int32_t expert) {
    const auto at = (problem_.token_begin(rank) + token) * shape.topk + slot;
    slot_experts.push_back(expert);
    slot_weights.push_back(slot < shape.topk ? routing.weight[static_cast<std::size_t>(at)] : 1.0f);
  });
  Arrays arrays;
  arrays.add(copy_of(counts.group_blocks, groups + 1), layer.counts.group_blocks);
  arrays.add(copy_of(counts.group_starts, groups), layer.counts.group_starts);
  arrays.add(copy_of(counts.dispatch_experts, static_cast<std::size_t>(counts.num_experts)),
             layer.counts.dispatch_experts);
  arrays.add(rows_by_holder, layer.rows_by_holder);
  arrays.add(slot_experts, layer.slot_experts);
  arrays.add(slot_weights, layer.slot_weights);
  memory.plan = arrays.on(flag_world_.device());
}

void GpuLayer::fill(const Inputs& inputs) {
  const auto& shape = problem_.shape();
  for (int rank = 0; rank < problem_.num_ranks(); ++rank) {
    auto& memory = memory_[static_cast<std::size_t>(rank)];
    std::size_t gate_up = 0, down = 0;
    for (const auto expert : problem_.local_experts(rank)) {
      for (const auto& part : {inputs.gate(expert), inputs.up(expert)}) {
        memory.gate_up.write(gate_up, part.bytes());
        gate_up += part.bytes().size();
      }
      memory.down.write(down, inputs.down_of(expert).bytes());
      down += inputs.down_of(expert).bytes().size();
    }
  }
  const auto row_bytes = static_cast<std::size_t>(shape.hidden) * kElement;
  std::vector<std::vector<std::byte>> rows;
  for (const auto& memory : memory_) rows.emplace_back(memory.rows.size());
  for (int source = 0; source < problem_.num_ranks(); ++source) {
    for_each_row(problem_, inputs.routing, source, [&](std::int64_t token, int, int holder, std::int64_t row) {
      const auto bytes = inputs.token(problem_.token_begin(source) + token).bytes();
      auto& all = rows[static_cast<std::size_t>(holder)];
      std::ranges::copy(bytes, all.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(row) * row_bytes));
    });
  }
  for (std::size_t rank = 0; rank < rows.size(); ++rank) memory_[rank].rows.write(0, rows[rank]);
}

void GpuLayer::launch(cudaStream_t stream) const { launch_layer(params_, num_blocks_, most_groups_, stream); }

std::vector<float> GpuLayer::output(int rank) const {
  const auto& memory = memory_[static_cast<std::size_t>(rank)];
  const auto count = problem_.tokens_of(rank) * problem_.shape().hidden;
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * kElement);
  memory.output.read(0, bytes);
  std::vector<float> buffer;
  const auto values = TensorView(DType::bf16, bytes).floats(buffer);
  return {values.begin(), values.end()};
}

std::vector<GpuTask> GpuLayer::tasks(int rank) const {
  if (!stamps_) return {};
  std::vector<TaskStamp> stamps(static_cast<std::size_t>(problem_.counts(rank).num_tasks()));
  memory_[static_cast<std::size_t>(rank)].stamps.read(0, std::as_writable_bytes(std::span(stamps)));
  std::vector<GpuTask> tasks;
  for (const auto& stamp : stamps) {
    tasks.push_back({{static_cast<TaskKind>(stamp.kind), stamp.block, stamp.tile},
                     stamp.worker,
                     Cycles{static_cast<double>(stamp.begin)},
                     Cycles{static_cast<double>(stamp.end)},
                     Cycles{static_cast<double>(stamp.waited)}});
  }
  return tasks;
}

}  // namespace xs::moe
