#include "xstage/op/moe/gpu_layer.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "xstage/core/error.hpp"
#include "xstage/mem/residency.hpp"
#include "xstage/tile/pacer.hpp"
#include "xstage/tile/tensor_map.hpp"

namespace xs::moe {
namespace {

constexpr std::size_t kElement = 2;  // bytes of bf16
constexpr int kBoxRows = 128;        // of a load

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

// Flags of every rank: arrived[block] counts rows, activated[block] Linear-1 tiles, released[block] Linear-2 tiles that
// have read its activations, combined[rank] rows of tiles.
struct Flags {
  int blocks;
  int arrived() const { return 0; }
  int activated() const { return blocks; }
  int released() const { return 2 * blocks; }
  int combined() const { return 3 * blocks; }
  int count(int num_ranks) const { return 3 * blocks + num_ranks; }
};
Flags flags_of(const MoeProblem& problem) { return {problem.max_blocks()}; }

SignalOptions with_names(SignalOptions options, const Flags& flags) {
  options.flag_name = [flags](int flag) {
    if (flag >= flags.combined()) return fmt::format("combined[{}]", flag - flags.combined());
    if (flag >= flags.released()) return fmt::format("released[{}]", flag - flags.released());
    return flag >= flags.activated() ? fmt::format("activated[{}]", flag - flags.activated())
                                     : fmt::format("arrived[{}]", flag);
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

// What a source sends, by expert.
struct Sends {
  std::vector<RowSend> rows;
  std::vector<std::int32_t> begin;    // [experts + 1], shared ones included
  std::vector<std::int32_t> holders;  // [experts]
};

Sends sends_of(const MoeProblem& problem, const Routing& routing, int source) {
  const auto experts = static_cast<std::int32_t>(problem.shape().all_experts());
  Sends sends;
  sends.begin.push_back(0);
  std::vector<std::int32_t> next_row;
  for (std::int32_t expert = 0; expert < experts; ++expert) {
    const int holder = problem.holder(expert, source);
    sends.holders.push_back(holder);
    sends.begin.push_back(sends.begin.back() + problem.rows_of(source, expert));
    next_row.push_back(problem.rows_of(source, expert) == 0
                           ? 0
                           : problem.first_block(holder, expert) * kGpuTiling.block_rows +
                                 problem.row_offset(source, expert));
  }
  sends.rows.resize(static_cast<std::size_t>(sends.begin.back()));
  auto place = sends.begin;
  for_each_slot(problem, routing, source, [&](std::int64_t token, int slot, std::int32_t expert) {
    if (expert < 0) return;
    const auto of = static_cast<std::size_t>(expert);
    sends.rows[static_cast<std::size_t>(place[of]++)] = {
        static_cast<std::int32_t>(token), next_row[of]++,
        static_cast<std::int32_t>(token * problem.shape().num_slots() + slot)};
  });
  return sends;
}

// A measured rank's peers have room for its rows alone, one behind the other.
void close_up(Sends& sends, int measured_rank) {
  std::map<int, std::int32_t> next;
  for (std::size_t expert = 0; expert < sends.holders.size(); ++expert) {
    if (sends.holders[expert] == measured_rank) continue;
    for (auto i = sends.begin[expert]; i < sends.begin[expert + 1]; ++i) {
      sends.rows[static_cast<std::size_t>(i)].row = next[sends.holders[expert]]++;
    }
  }
}

// [holder] rows that a source dispatches; [owner] rows that a holder sends back.
std::vector<std::int64_t> rows_to_holders(const MoeProblem& problem, int source) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(problem.num_ranks()));
  for (std::int32_t expert = 0; expert < problem.shape().all_experts(); ++expert) {
    rows[static_cast<std::size_t>(problem.holder(expert, source))] += problem.rows_of(source, expert);
  }
  return rows;
}
std::vector<std::int64_t> rows_to_owners(const MoeProblem& problem, int holder) {
  std::vector<std::int64_t> rows;
  for (int owner = 0; owner < problem.num_ranks(); ++owner) {
    rows.push_back(rows_to_holders(problem, owner)[static_cast<std::size_t>(holder)]);
  }
  return rows;
}

}  // namespace

GpuLayer::Regions::Regions(const MoeProblem& problem) : num_flags(flags_of(problem).count(problem.num_ranks())) {
  require(problem.num_ranks() <= kMostParts, "{} virtual ranks: a GPU runs up to {}", problem.num_ranks(), kMostParts);
  std::int64_t tokens = 1;
  for (int rank = 0; rank < problem.num_ranks(); ++rank) tokens = std::max(tokens, problem.tokens_of(rank));
  const auto all_rows = std::int64_t{std::max(problem.max_blocks(), 1)} * kGpuTiling.block_rows;
  signals = GpuSignals::reserve(flags, num_flags, problem.num_ranks());
  tags = rows.add("tags", bytes_of(all_rows, 1, sizeof(RowTag)));  // in front: the rows may have less room
  dispatched = rows.add("rows", bytes_of(all_rows, problem.shape().hidden));
  combine_slots = slots.add("slots", bytes_of(tokens * problem.shape().num_slots(), problem.shape().hidden));
}

RankMemory GpuLayer::make_memory(int rank) const {
  const auto& shape = problem_.shape();
  const int device = flag_world_.device();
  const auto slots = problem_.tiling().activation_slots(blocks_of(problem_, rank));
  const auto experts = static_cast<std::int64_t>(problem_.local_experts(rank).size());
  const auto own = [&](std::size_t bytes) { return GpuMemory(device, GpuPlace::own, bytes); };
  return {own(bytes_of(problem_.tokens_of(rank), shape.hidden)),
          own(bytes_of(experts, 2 * shape.intermediate * shape.hidden)),
          own(bytes_of(experts, shape.hidden * shape.intermediate)),
          own(bytes_of(slots * kGpuTiling.block_rows, shape.intermediate)),
          own(bytes_of(problem_.tokens_of(rank), shape.hidden)),
          own(16),
          own(1),
          own(1),
          own(sizeof(std::uint64_t))};
}

GpuWorld GpuLayer::make_world(const Layout& layout, RegionId rows, const Rooms& rooms, GpuPlace place) {
  const int device = flag_world_.device();
  if (ranks_.are_all) return {layout, problem_.num_ranks(), device, place};
  std::vector<std::byte*> parts;
  for (int rank = 0; rank < problem_.num_ranks(); ++rank) {
    const bool own = rank == ranks_.first;
    const auto room = bytes_of(rooms[static_cast<std::size_t>(rank)], problem_.shape().hidden);
    parts_.emplace_back(device, own ? GpuPlace::own : place, own ? layout.total_bytes() : layout.offset(rows) + room);
    parts.push_back(parts_.back().data());
  }
  return {layout, std::move(parts), ranks_.first, device};
}

GpuLayer::GpuLayer(const MoeProblem& problem, const Routing& routing, const GpuRunOptions& options)
    : GpuLayer(problem, routing, options, Ranks{0, problem.num_ranks(), true}) {}

GpuLayer::GpuLayer(const MoeProblem& problem, const Routing& routing, const GpuRunOptions& options, int measured_rank)
    : GpuLayer(problem, routing, options, Ranks{measured_rank, 1, false}) {}

GpuLayer::GpuLayer(const MoeProblem& problem, const Routing& routing, const GpuRunOptions& options, Ranks ranks)
    : problem_(problem),
      ranks_(ranks),
      regions_(problem),
      flag_world_(regions_.flags, problem.num_ranks(), options.device, GpuPlace::own),
      row_world_(make_world(regions_.rows, regions_.dispatched, rows_to_holders(problem, ranks.first),
                            ranks.are_all ? GpuPlace::own : options.receive)),
      slot_world_(
          make_world(regions_.slots, regions_.combine_slots, rows_to_owners(problem, ranks.first), options.receive)),
      signals_(flag_world_, regions_.signals, regions_.num_flags, with_names(options.signals, flags_of(problem))) {
  const auto& shape = problem.shape();
  for (int rank = 0; rank < problem.num_ranks(); ++rank) {
    most_groups_ = std::max(most_groups_, static_cast<int>(problem.local_experts(rank).size()));
  }
  const auto needs = layer_kernel_needs(most_groups_);
  auto grid = residency_of(options.device, needs.kernel, "moe", 0, needs.threads, needs.shared_bytes);
  const int sms_per_rank = options.sms_per_rank > 0 ? options.sms_per_rank : grid.num_sms / ranks_.count;
  num_blocks_ = grid.num_blocks = sms_per_rank * ranks_.count;
  require_resident(grid);
  if (!ranks_.are_all) {
    own_row_world_ =
        make_world(regions_.rows, regions_.dispatched, rows_to_holders(problem, ranks_.first), GpuPlace::own);
  }
  params_.num_parts = ranks_.count;
  params_.tables = signals_.tables() + ranks_.first;
  params_.rows = row_world_.layout().offset(regions_.dispatched);
  params_.tags = row_world_.layout().offset(regions_.tags);
  params_.slot_parts = slot_world_.rank(ranks_.first).parts;
  params_.slots = slot_world_.layout().offset(regions_.combine_slots);
  params_.hidden = static_cast<std::int32_t>(shape.hidden);
  params_.intermediate = static_cast<std::int32_t>(shape.intermediate);
  params_.num_slots = shape.num_slots();
  params_.arrived = flags_of(problem).arrived();
  params_.activated = flags_of(problem).activated();
  params_.released = flags_of(problem).released();
  params_.combined = flags_of(problem).combined();
  params_.clamp = std::numeric_limits<float>::infinity();
  params_.pace = even_share(options.pace, 2 * sms_per_rank, 1);
  params_.clock = gpu_info(options.device).clock;
  for (int rank = ranks_.first; rank < ranks_.first + ranks_.count; ++rank) {
    memory_.push_back(make_memory(rank));
    plan_rank(rank, routing);
  }
  if (!ranks_.are_all) place_rows_of_peers(ranks_.first, routing);
  set(options.order, options.claim, options.rows_to, options.stamps);
}

// Where activations stand in a ring, which the order decides.
void GpuLayer::place_activations(int rank, const Order& order) {
  const auto blocks = problem_.num_blocks(rank);
  const auto slots = static_cast<std::int32_t>(problem_.tiling().activation_slots(blocks));
  auto& layer = params_.ranks[index(rank)];
  layer.slots = layer.taken_from = nullptr;
  if (slots == blocks) return;
  const auto tasks = expand(order, problem_.counts(rank));
  const auto least = ring_bound(tasks, blocks);
  require(slots >= least, "a ring of {} blocks: {} needs at least {}", slots, to_string(order), least);
  const auto uses = activation_uses(tasks, blocks);
  std::vector<std::int32_t> slot_of, taken_from;
  for (const auto use : uses.use) {
    slot_of.push_back(use % slots);
    taken_from.push_back(use < slots ? -1 : uses.block[static_cast<std::size_t>(use - slots)]);
  }
  Arrays arrays;
  arrays.add(slot_of, layer.slots);
  arrays.add(taken_from, layer.taken_from);
  memory_[index(rank)].ring = arrays.on(flag_world_.device());
}

void GpuLayer::set(const Order& order, Claim claim, RowsTo rows_to, bool stamps) {
  for (int rank = ranks_.first; rank < ranks_.first + ranks_.count; ++rank) place_activations(rank, order);
  params_.order = order;
  params_.claim = claim;
  params_.rows_to = rows_to;
  const auto& rows = own_row_world_ && rows_to != RowsTo::owners ? *own_row_world_ : row_world_;
  params_.row_parts = rows.rank(ranks_.first).parts;
  for (int i = 0; i < ranks_.count; ++i) {
    auto& memory = memory_[static_cast<std::size_t>(i)];
    const int rank = ranks_.first + i;
    const auto bytes = static_cast<std::size_t>(problem_.counts(rank).num_tasks()) * sizeof(TaskStamp);
    if (stamps && memory.stamps.size() < bytes) memory.stamps = GpuMemory(flag_world_.device(), GpuPlace::own, bytes);
    auto& layer = params_.ranks[i];
    layer.stamps = stamps ? reinterpret_cast<TaskStamp*>(memory.stamps.data()) : nullptr;
    layer.rows = map_matrix(rows.at(rank, regions_.dispatched), blocks_of(problem_, rank) * kGpuTiling.block_rows,
                            problem_.shape().hidden, kBoxRows);
  }
}

void GpuLayer::plan_rank(int rank, const Routing& routing) {
  const auto& shape = problem_.shape();
  auto& memory = memory_[index(rank)];
  auto& layer = params_.ranks[rank - ranks_.first];
  const auto slots = problem_.tiling().activation_slots(blocks_of(problem_, rank));
  const auto experts = static_cast<std::int64_t>(problem_.local_experts(rank).size());
  layer.gate_up = map_matrix(memory.gate_up.data(), std::max<std::int64_t>(experts, 1) * 2 * shape.intermediate,
                             shape.hidden, kBoxRows);
  layer.activations =
      map_matrix(memory.activations.data(), slots * kGpuTiling.block_rows, shape.intermediate, kBoxRows);
  layer.down =
      map_matrix(memory.down.data(), std::max<std::int64_t>(experts, 1) * shape.hidden, shape.intermediate, kBoxRows);
  layer.activation_rows = memory.activations.data();
  layer.tokens = memory.tokens.data();
  layer.output = memory.output.data();
  layer.num_tokens = static_cast<std::int32_t>(problem_.tokens_of(rank));
  layer.next_claim = reinterpret_cast<std::uint64_t*>(memory.next_claim.data());

  Sends sends = sends_of(problem_, routing, rank);
  std::vector<std::int32_t> rows_by_holder(static_cast<std::size_t>(problem_.num_ranks()));
  for (std::size_t expert = 0; expert < sends.holders.size(); ++expert) {
    rows_by_holder[static_cast<std::size_t>(sends.holders[expert])] += sends.begin[expert + 1] - sends.begin[expert];
  }
  std::vector<std::int32_t> block_rows, arriving;
  for (std::int32_t block = 0; block < problem_.num_blocks(rank); ++block) {
    const auto& of = problem_.block(rank, block);
    block_rows.push_back(of.num_rows);
    arriving.push_back(ranks_.are_all ? of.num_rows : 0);
    if (ranks_.are_all) continue;
    for (const auto& segment : problem_.segments(of)) arriving.back() += segment.source == rank ? segment.count : 0;
  }
  if (!ranks_.are_all) {
    close_up(sends, rank);
    for (int peer = 0; peer < problem_.num_ranks(); ++peer) {
      if (peer != rank) rows_by_holder[static_cast<std::size_t>(peer)] = 0;  // they send nothing back
    }
  }
  layer.num_rows = std::accumulate(block_rows.begin(), block_rows.end(), 0);

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
  arrays.add(block_rows, layer.block_rows);
  arrays.add(arriving, layer.arriving);
  arrays.add(sends.rows, layer.sends);
  arrays.add(sends.begin, layer.send_begin);
  arrays.add(sends.holders, layer.holders);
  arrays.add(rows_by_holder, layer.rows_by_holder);
  arrays.add(slot_experts, layer.slot_experts);
  arrays.add(slot_weights, layer.slot_weights);
  memory.plan = arrays.on(flag_world_.device());
}

// Where rows of a measured rank's peers come back to; the rows themselves hold whatever is there.
void GpuLayer::place_rows_of_peers(int rank, const Routing& routing) const {
  std::vector<RowTag> tags(static_cast<std::size_t>(blocks_of(problem_, rank) * kGpuTiling.block_rows), {-1, 0});
  for (int source = 0; source < problem_.num_ranks(); ++source) {
    if (source == rank) continue;
    const auto sends = sends_of(problem_, routing, source);
    std::int32_t slot = 0;
    for (std::size_t expert = 0; expert < sends.holders.size(); ++expert) {
      if (sends.holders[expert] != rank) continue;
      for (auto i = sends.begin[expert]; i < sends.begin[expert + 1]; ++i) {
        tags[static_cast<std::size_t>(sends.rows[static_cast<std::size_t>(i)].row)] = {source, slot++};
      }
    }
  }
  for (const auto* rows : {&row_world_, &*own_row_world_}) {
    rows->write(rank, regions_.tags, 0, std::as_bytes(std::span(tags)));
  }
}

void GpuLayer::fill(const Inputs& inputs) {
  const auto& shape = problem_.shape();
  params_.clamp = inputs.clamp;
  for (int rank = ranks_.first; rank < ranks_.first + ranks_.count; ++rank) {
    auto& memory = memory_[index(rank)];
    std::size_t gate_up = 0, down = 0;
    for (const auto expert : problem_.local_experts(rank)) {
      for (const auto& part : {inputs.gate(expert), inputs.up(expert)}) {
        memory.gate_up.write(gate_up, part.bytes());
        gate_up += part.bytes().size();
      }
      memory.down.write(down, inputs.down_of(expert).bytes());
      down += inputs.down_of(expert).bytes().size();
    }
    const auto tokens = inputs.hidden_states.view();
    memory.tokens.write(
        0, tokens.part(problem_.token_begin(rank) * shape.hidden, problem_.tokens_of(rank) * shape.hidden).bytes());
  }
}

void GpuLayer::fill_random(const GpuStream& stream) {
  std::uint64_t seed = 1;
  const auto fill = [&](std::byte* target, std::size_t bytes) {
    launch_random_fill(target, bytes, seed++ << 40, stream.get());
  };
  for (const auto& memory : memory_) {
    for (const auto* of : {&memory.tokens, &memory.gate_up, &memory.down}) fill(of->data(), of->size());
  }
  if (!ranks_.are_all) {  // what its peers would have sent
    const int rank = ranks_.first;
    const auto bytes = bytes_of(blocks_of(problem_, rank) * kGpuTiling.block_rows, problem_.shape().hidden);
    for (const auto* rows : {&row_world_, &*own_row_world_}) fill(rows->at(rank, regions_.dispatched), bytes);
  }
  stream.finish();
}

Nanos GpuLayer::run(const GpuStream& stream) const {
  if (!ranks_.are_all) launch_absent(signals_.tables(), problem_.num_ranks(), ranks_.first, stream.get());
  const auto time = stream.time([&] { launch_layer(params_, num_blocks_, most_groups_, stream.get()); });
  signals_.throw_if_given_up();
  return time;
}

std::vector<float> GpuLayer::output(int rank) const {
  const auto& memory = memory_[index(rank)];
  const auto count = problem_.tokens_of(rank) * problem_.shape().hidden;
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * kElement);
  memory.output.read(0, bytes);
  std::vector<float> buffer;
  const auto values = TensorView(DType::bf16, bytes).floats(buffer);
  return {values.begin(), values.end()};
}

std::vector<GpuTask> GpuLayer::tasks(int rank) const {
  if (params_.ranks[index(rank)].stamps == nullptr) return {};
  std::vector<TaskStamp> stamps(static_cast<std::size_t>(problem_.counts(rank).num_tasks()));
  memory_[index(rank)].stamps.read(0, std::as_writable_bytes(std::span(stamps)));
  std::vector<GpuTask> tasks;
  for (const auto& stamp : stamps) {
    tasks.push_back({{static_cast<TaskKind>(stamp.kind), stamp.block, stamp.tile},
                     stamp.worker,
                     Cycles{static_cast<double>(stamp.begin)},
                     Cycles{static_cast<double>(stamp.end)},
                     Cycles{static_cast<double>(stamp.waited)},
                     Cycles{static_cast<double>(stamp.stalled)}});
  }
  return tasks;
}

}  // namespace xs::moe
