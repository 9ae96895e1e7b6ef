#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "xstage/core/json_fwd.hpp"
#include "xstage/plan/moe_placement.hpp"
#include "xstage/plan/moe_shape.hpp"
#include "xstage/plan/order.hpp"
#include "xstage/plan/routing.hpp"
#include "xstage/plan/schedule.hpp"

// A mixture-of-experts layer as a problem of order: which row blocks there are, what every task waits for, touches,
// sends and raises. Everything follows from the matrix of row counts (source rank, expert); no tensor is touched.
//
// On the rank that holds an expert, its rows stand sorted by token over all ranks. Where in a block a row stands
// changes no bit of a product, so results are bitwise equal on any number of ranks and for any placement.

namespace xs {

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
  std::int32_t replica;    // which of the expert's holders this rank is
  std::int32_t first_row;  // among the expert's rows on this rank
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
  // rows[source * num_experts + expert] of the routed experts.
  MoeProblem(const MoeShape& shape, const MoeTiling& tiling, MoePlacement placement, std::vector<std::int32_t> rows);
  // With tokens and experts in contiguous, even parts.
  MoeProblem(const MoeShape& shape, const MoeTiling& tiling, int num_ranks, std::int64_t num_tokens,
             std::vector<std::int32_t> rows);

  const MoeShape& shape() const { return shape_; }
  const MoeTiling& tiling() const { return tiling_; }
  const MoePlacement& placement() const { return placement_; }
  int num_ranks() const { return placement_.num_ranks(); }
  std::int64_t num_tokens() const { return token_begin_.back(); }
  std::span<const std::int32_t> rows() const { return {rows_.data(), rows_.size()}; }

  std::int64_t token_begin(int rank) const { return token_begin_[index(rank)]; }
  std::int64_t tokens_of(int rank) const { return placement_.tokens[index(rank)]; }
  // Where the source's rows of an expert, shared ones included, go.
  std::int32_t holder(std::int32_t expert, int source) const { return experts_.holder(expert, source); }
  // That the rank holds, ascending; group g of its Counts is number g.
  std::span<const std::int32_t> local_experts(int rank) const { return local_experts_[index(rank)]; }
  std::int32_t rows_of(int source, std::int32_t expert) const {
    return expert < shape_.num_experts ? rows_[index(source) * index(shape_.num_experts) + index(expert)]
                                       : static_cast<std::int32_t>(tokens_of(source));
  }
  // Of a dispatch task of `source`: which of its rows for the expert.
  struct PartOfRows {
    std::int32_t first, count;
  };
  PartOfRows part_of_rows(int source, const Task& task) const {
    const auto begin = [&](std::int64_t part) {
      return static_cast<std::int32_t>(split_begin(rows_of(source, task.block), tiling_.dispatch_parts, part));
    };
    return {begin(task.tile), begin(task.tile + 1) - begin(task.tile)};
  }
  // Where the source's rows begin among the expert's rows on their holder.
  std::int32_t row_offset(int source, std::int32_t expert) const {
    return offsets_[index(source) * index(shape_.all_experts()) + index(expert)];
  }
  // From all sources, itself included.
  std::int64_t rows_received(int rank) const;

  std::int32_t num_blocks(int rank) const { return static_cast<std::int32_t>(blocks_[index(rank)].size()); }
  std::int32_t max_blocks() const { return max_blocks_; }
  const MoeBlock& block(int rank, std::int32_t block) const { return blocks_[index(rank)][index(block)]; }
  // First row block of a local expert.
  std::int32_t first_block(int rank, std::int32_t expert) const;
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
  // Of any problem with up to so many blocks on a rank.
  static std::int64_t most_flags(int num_ranks, std::int64_t max_blocks) { return 2 * num_ranks + 3 * max_blocks; }
  static std::int32_t counted(int peer) { return peer; }
  std::int32_t combined(int peer) const { return num_ranks() + peer; }
  std::int32_t arrived(std::int32_t block) const { return 2 * num_ranks() + block; }
  std::int32_t activated(std::int32_t block) const { return 2 * num_ranks() + max_blocks_ + block; }
  std::int32_t released(std::int32_t block) const { return 2 * num_ranks() + 2 * max_blocks_ + block; }

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
  std::int32_t group_of(int rank, std::int32_t expert) const;
  void place_rows(int rank);
  void order_dispatch(int rank);
  void append_effects(int rank, const Task& task, const ActivationUses& uses, const MoeBytes& bytes,
                      RankSchedule& schedule) const;

  MoeShape shape_;
  MoeTiling tiling_;
  MoePlacement placement_;
  ExpertMap experts_;  // with the shared ones
  std::vector<std::int32_t> rows_;
  std::vector<std::int64_t> token_begin_;
  std::vector<std::int32_t> offsets_;
  std::vector<std::vector<std::int32_t>> local_experts_;     // [rank]
  std::vector<std::vector<std::int32_t>> dispatch_experts_;  // [rank]
  std::vector<std::vector<MoeBlock>> blocks_;                // [rank]
  std::vector<std::vector<std::int32_t>> group_blocks_;      // [rank][local expert], prefix sums
  std::vector<std::vector<RotationStarts>> group_starts_;    // [rank][local expert]
  std::vector<std::int32_t> owned_blocks_;                   // [holder * num_ranks + source] blocks with rows of source
  std::int32_t max_blocks_ = 0;
};

// Row counts of a routing, [rank, expert].
std::vector<std::int32_t> count_rows(const Routing& routing, int num_experts, std::span<const std::int64_t> tokens);
// The same of tokens [first, end), without regard to ranks: [expert].
std::vector<std::int32_t> count_rows(const Routing& routing, int num_experts, std::int64_t first, std::int64_t end);
// What the placement leaves open lies evenly.
MoeProblem make_problem(const MoeShape& shape, const MoeTiling& tiling, int num_ranks, const Routing& routing,
                        MoePlacement placement = {});

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
