#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "xstage/core/json_fwd.hpp"
#include "xstage/plan/order.hpp"
#include "xstage/plan/routing.hpp"
#include "xstage/plan/schedule.hpp"

// A mixture-of-experts layer as a problem of order: which row blocks there are, what every task waits for, touches,
// sends and raises. Everything follows from the matrix of row counts (source rank, expert); no tensor is touched.
//
// Experts and tokens lie on ranks in contiguous, even parts (split_begin). On the rank that holds an expert, its rows
// stand sorted by token over all ranks, so a row's place in its block does not depend on the number of ranks: results
// are then bitwise equal on any number.

namespace xs {

struct MoeShape {
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  int num_experts = 0;
  int topk = 0;
  friend bool operator==(const MoeShape&, const MoeShape&) = default;
};

struct MoeModel {
  std::string name;
  MoeShape shape;
  int shared_experts = 0;
  bool verified = false;  // shape checked against the model's own configuration
};
std::vector<MoeModel> list_moe_models();
MoeModel find_moe_model(const std::string& name);
// hidden and intermediate divided by `factor`, experts and top-k kept.
MoeShape shrink(const MoeShape& shape, int factor);

struct MoeTiling {
  int block_rows = 128;
  int linear1_cols = 64;  // activation columns of a tile: as many gate and as many up columns of the product
  int linear2_cols = 128;
  int reduce_tokens = 32;
  int ring_blocks = 0;  // whose activations a rank holds at once; 0: all
  friend bool operator==(const MoeTiling&, const MoeTiling&) = default;
};

struct MoeBytes {  // per element
  double weight = 2;
  double dispatch = 2;
  double combine = 2;
};

// `block`'s rows of one source rank: rows [first, first + count) of the block are the source's rows
// [first_of_source, …) for the block's expert.
struct MoeSegment {
  int source;
  std::int32_t first;
  std::int32_t count;
  std::int32_t first_of_source;
};

struct MoeBlock {
  std::int32_t expert;     // over all ranks
  std::int32_t first_row;  // among the expert's rows
  std::int32_t num_rows;   // up to block_rows
};

// The order in which the blocks of a rank take the slots of its activations: use u takes slot u % slots. Blocks stand
// in the order of their first Linear-1 task, so that an order that permutes them needs no larger ring for it.
struct ActivationUses {
  std::vector<std::int32_t> block;  // [use]; blocks without a Linear-1 task come last
  std::vector<std::int32_t> use;    // [block]
};
ActivationUses activation_uses(std::span<const Task> tasks, std::int32_t num_blocks);
// The smallest ring_blocks with which a rank's order passes the check.
std::int32_t ring_bound(std::span<const Task> tasks, std::int32_t num_blocks);

class MoeProblem {
 public:
  // rows[source * num_experts + expert], num_tokens over all ranks.
  MoeProblem(const MoeShape& shape, const MoeTiling& tiling, int num_ranks, std::int64_t num_tokens,
             std::vector<std::int32_t> rows);

  const MoeShape& shape() const { return shape_; }
  const MoeTiling& tiling() const { return tiling_; }
  int num_ranks() const { return num_ranks_; }
  std::int64_t num_tokens() const { return num_tokens_; }
  std::span<const std::int32_t> rows() const { return {rows_.data(), rows_.size()}; }

  std::int64_t token_begin(int rank) const { return split_begin(num_tokens_, num_ranks_, rank); }
  std::int32_t expert_begin(int rank) const {
    return static_cast<std::int32_t>(split_begin(shape_.num_experts, num_ranks_, rank));
  }
  int rank_of_expert(std::int32_t expert) const;
  std::int32_t rows_of(int source, std::int32_t expert) const { return rows_[cell(source, expert)]; }
  // Where the source's rows begin among the expert's rows.
  std::int32_t row_offset(int source, std::int32_t expert) const { return offsets_[cell(source, expert)]; }

  std::int32_t num_blocks(int rank) const { return static_cast<std::int32_t>(blocks_[index(rank)].size()); }
  std::int32_t max_blocks() const { return max_blocks_; }
  const MoeBlock& block(int rank, std::int32_t block) const { return blocks_[index(rank)][index(block)]; }
  // First row block of a local expert on the rank that holds it.
  std::int32_t first_block(std::int32_t expert) const;
  std::vector<MoeSegment> segments(const MoeBlock& block) const;

  // The same layer with another ring.
  MoeProblem with_ring(int ring_blocks) const;
  // Slots for activations on every rank; a rank with more blocks than slots uses them as a ring.
  std::int32_t activation_slots() const;

  // The view stays valid as long as this problem.
  Counts counts(int rank) const;

  // Flags of every rank: counted[peer] when that peer's row counts are here (before the first task), combined[peer]
  // counts Linear-2 tiles of that peer with rows of this rank, arrived[block] rows, activated[block] Linear-1 tiles,
  // released[block] Linear-2 tiles of a block whose slot another block takes next.
  std::vector<FlagGroup> flags() const;
  static std::int32_t counted(int peer) { return peer; }
  std::int32_t combined(int peer) const { return num_ranks_ + peer; }
  std::int32_t arrived(std::int32_t block) const { return 2 * num_ranks_ + block; }
  std::int32_t activated(std::int32_t block) const { return 2 * num_ranks_ + max_blocks_ + block; }
  std::int32_t released(std::int32_t block) const { return 2 * num_ranks_ + 2 * max_blocks_ + block; }

  // Buffers of every rank: rows[block] with their origins, activations[slot], and slots[peer], the combine slots that
  // that peer fills.
  std::vector<Region> regions() const;

  // One rank's tasks with everything they wait for, read, write, send and raise.
  RankSchedule rank_schedule(int rank, std::vector<Task> tasks, const MoeBytes& bytes = {}) const;
  // All ranks.
  Schedule schedule(const Order& order, const MoeBytes& bytes = {}) const;
  Schedule schedule(const std::vector<std::vector<Task>>& tasks, const MoeBytes& bytes = {}) const;

 private:
  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
  std::size_t cell(int source, std::int32_t expert) const {
    return index(source) * index(shape_.num_experts) + index(expert);
  }
  void append_effects(int rank, const Task& task, const ActivationUses& uses, const MoeBytes& bytes,
                      RankSchedule& schedule) const;

  MoeShape shape_;
  MoeTiling tiling_;
  int num_ranks_;
  std::int64_t num_tokens_;
  std::vector<std::int32_t> rows_;
  std::vector<std::int32_t> offsets_;
  std::vector<std::vector<MoeBlock>> blocks_;              // [rank]
  std::vector<std::vector<std::int32_t>> group_blocks_;    // [rank][local expert], prefix sums
  std::vector<std::vector<RotationStarts>> group_starts_;  // [rank][local expert]
  std::vector<std::int32_t> owned_blocks_;                 // [holder * num_ranks + source] blocks with rows of source
  std::int32_t max_blocks_ = 0;
};

// Row counts of a routing whose tokens lie evenly on `num_ranks` ranks.
std::vector<std::int32_t> count_rows(const Routing& routing, int num_experts, int num_ranks);
MoeProblem make_problem(const MoeShape& shape, const MoeTiling& tiling, int num_ranks, const Routing& routing);

// Local experts in a wave, by the rule of DeepGEMM's expert waves without its bound by a ring: the fewest that give
// every SM two Linear-1 tiles at the mean number of rows (real experts may have half of that), and up to twice as many
// if that makes the last wave fuller, since a partial wave leaves SMs idle. An expert that fills the SMs by itself
// needs no fuller waves, and smaller ones find their activations in the cache. With less than one row per expert most
// have none: all are one wave.
int default_experts_per_wave(const MoeProblem& problem, int num_sms);

// Drain demand of uninterrupted Linear-2 tiles over the link's rate: above 1, back-to-back Linear-2 tiles fill the
// port. rho = f s P / (2 I B), f = share of remote rows, s = bytes per combined element, P = rate of the products,
// I = intermediate size, B = drain.
double rho(const MoeShape& shape, int num_ranks, double combine_bytes, double flops_per_ns, double drain_bytes_per_ns);

// A problem with an explicit order for every rank, as a file of kind "moe_schedule".
struct MoeScheduleFile {
  MoeProblem problem;
  std::vector<std::vector<Task>> tasks;  // [rank]
};
Json to_json(const MoeProblem& problem, const Schedule& schedule);
MoeScheduleFile read_moe_schedule(const std::filesystem::path& file);
// `name` says in errors where the text came from.
MoeScheduleFile parse_moe_schedule(std::string_view text, const std::string& name);

}  // namespace xs
