#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "xstage/mem/gpu_stream.hpp"
#include "xstage/mem/gpu_world.hpp"
#include "xstage/op/moe/moe_gpu.hpp"
#include "xstage/op/moe/moe_kernel.hpp"
#include "xstage/signal/gpu_signals.hpp"

// The memory of a layer on one GPU and its launches. For code that calls CUDA.

namespace xs::moe {

// What one rank has for itself.
struct RankMemory {
  GpuMemory tokens;       // [tokens, hidden] bf16
  GpuMemory gate_up;      // [local experts, 2, intermediate, hidden] bf16
  GpuMemory down;         // [local experts, hidden, intermediate] bf16
  GpuMemory activations;  // [slots, 128, intermediate] bf16
  GpuMemory output;       // [tokens, hidden] bf16
  GpuMemory plan;         // what Counts points to, and the routing of the rank's tokens
  GpuMemory ring;         // which slot each block's activations take, from which block
  GpuMemory stamps;       // [tasks] TaskStamp, or none
  GpuMemory next_claim;
};

class GpuLayer {
 public:
  // All ranks. `problem` is of make_gpu_problem() and must outlive this; `routing` is the one that it was made of.
  // Weights and tokens are zeros until fill().
  GpuLayer(const MoeProblem& problem, const Routing& routing, const GpuRunOptions& options);
  // One rank, to be measured: it computes and sends, its peers only receive, in `options.receive`. What they would have
  // sent stands there from the beginning, so its own sends alone are in the time; the output means nothing.
  GpuLayer(const MoeProblem& problem, const Routing& routing, const GpuRunOptions& options, int measured_rank);

  void fill(const Inputs& inputs);
  // With random numbers of the GPU's instead. On return: there.
  void fill_random(const GpuStream& stream);
  int num_workers() const { return num_blocks_ / ranks_.count; }  // of a rank
  // What the next launches do, instead of what the options say. Without RowsTo::owners a measured rank's tokens go to
  // memory of its own, too.
  void set(const Order& order, Claim claim, RowsTo rows_to, bool stamps);
  // Once, to its end; how long that took the GPU. Throws Error(timeout) with the report when a wait gave up; the layer
  // is then of no more use.
  Nanos run(const GpuStream& stream) const;
  std::vector<float> output(int rank) const;
  std::vector<GpuTask> tasks(int rank) const;

 private:
  struct Ranks {
    int first, count;  // that run
    bool are_all;
  };
  struct Regions {
    explicit Regions(const MoeProblem& problem);
    Layout flags, rows, slots;  // in what lies apart
    RegionId signals, tags, dispatched, combine_slots;
    int num_flags;
  };
  // Rows that each rank needs room for: a peer of a measured rank for what that sends alone.
  using Rooms = std::vector<std::int64_t>;

  GpuLayer(const MoeProblem& problem, const Routing& routing, const GpuRunOptions& options, Ranks ranks);
  std::size_t index(int rank) const { return static_cast<std::size_t>(rank - ranks_.first); }
  // `place`: of every rank's part, of a measured rank's peers.
  GpuWorld make_world(const Layout& layout, RegionId rows, const Rooms& rooms, GpuPlace place);
  RankMemory make_memory(int rank) const;
  void plan_rank(int rank, const Routing& routing);
  void place_activations(int rank, const Order& order);
  void place_rows_of_peers(int rank, const Routing& routing) const;
  const MoeProblem& problem_;
  Ranks ranks_;
  Regions regions_;
  std::vector<GpuMemory> parts_;  // of a measured rank and its peers
  GpuWorld flag_world_, row_world_, slot_world_;
  std::optional<GpuWorld> own_row_world_;  // of a measured rank: the same rows, all in its own memory
  GpuSignals signals_;
  std::vector<RankMemory> memory_;
  LayerParams params_{};
  int num_blocks_, most_groups_ = 0;
};

}  // namespace xs::moe
