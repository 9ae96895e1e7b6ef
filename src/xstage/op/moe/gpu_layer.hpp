#pragma once

#include <memory>
#include <vector>

#include "xstage/mem/gpu_world.hpp"
#include "xstage/op/moe/moe_gpu.hpp"
#include "xstage/op/moe/moe_kernel.hpp"
#include "xstage/signal/gpu_signals.hpp"

// The memory of a layer on one GPU and its launches. For code that calls CUDA.

namespace xs::moe {

// What one rank has for itself.
struct RankMemory {
  GpuMemory rows;         // [blocks, 128, hidden] bf16
  GpuMemory gate_up;      // [local experts, 2, intermediate, hidden] bf16
  GpuMemory down;         // [local experts, hidden, intermediate] bf16
  GpuMemory activations;  // [blocks, 128, intermediate] bf16
  GpuMemory output;       // [tokens, hidden] bf16
  GpuMemory tags;         // [blocks, 128] RowTag
  GpuMemory plan;         // what Counts points to, and the routing of the rank's tokens
  GpuMemory stamps;       // [tasks] TaskStamp
  GpuMemory next_claim;
};

class GpuLayer {
 public:
  // `problem` has kGpuTiling and must outlive this; `routing` is the one that it was made of. Weights and rows are
  // zeros until fill(), or until somebody writes memory().
  GpuLayer(const MoeProblem& problem, const Routing& routing, const GpuRunOptions& options);

  void fill(const Inputs& inputs);
  const RankMemory& memory(int rank) const { return memory_[static_cast<std::size_t>(rank)]; }
  // Queued. When the stream has come to its end, throw_if_given_up(); if that throws, the layer is of no more use.
  void launch(cudaStream_t stream) const;
  void throw_if_given_up() const { signals_.throw_if_given_up(); }
  std::vector<float> output(int rank) const;
  std::vector<GpuTask> tasks(int rank) const;

 private:
  struct Regions {
    explicit Regions(const MoeProblem& problem);
    Layout flags, slots;
    RegionId signals, combine_slots;
    int num_flags;
  };
  RankMemory make_memory(int rank) const;
  void plan_rank(int rank, const Routing& routing, const GpuRunOptions& options);
  const MoeProblem& problem_;
  bool stamps_;
  Regions regions_;
  GpuWorld flag_world_, slot_world_;
  GpuSignals signals_;
  std::vector<RankMemory> memory_;
  LayerParams params_{};
  int num_blocks_, most_groups_ = 0;
};

}  // namespace xs::moe
