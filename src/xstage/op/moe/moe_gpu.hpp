#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "xstage/core/bucket.hpp"
#include "xstage/mem/gpu.hpp"
#include "xstage/op/moe/moe.hpp"
#include "xstage/plan/rows_to.hpp"
#include "xstage/plan/timeline.hpp"
#include "xstage/signal/signals.hpp"

// The layer on a GPU: bf16, virtual ranks of one grid. Needs sm_90.

namespace xs::moe {

struct GpuRunOptions {
  int device = 0;
  int num_ranks = 1;
  MoePlacement placement;  // what it leaves open lies evenly
  Order order;
  Claim claim = Claim::fixed;
  int sms_per_rank = 0;              // 0: all of the GPU, in even parts
  int ring_blocks = 0;               // whose activations a rank holds at once; 0: all
  GpuPlace receive = GpuPlace::own;  // where combine slots lie
  RowsTo rows_to = RowsTo::owners;
  bool stamps = true;  // of a launch more, the last: the times are of launches without
  int repeats = 1;
  // What a rank's bytes for peers keep within, a part of its port's drain and capacity, which its SMs divide evenly; so
  // the port never fills, which would slow down the loads of all SMs where the link is PCIe. Drain 0: nothing is paced.
  BucketRates pace{};
  SignalOptions signals;
};

// Of bf16 activations and combine slots, against sums in double: relative_error().
inline constexpr double kMostRelativeError = 1e-2;

struct GpuTask {
  Task task;
  int worker;
  Cycles begin, end;  // since its worker began
  Cycles waited;      // for operands, of those; products of the step before go on meanwhile
  Cycles stalled;     // until rows of the tile before had left, of those
};

// Where the time of a rank's workers went, as shares of `longest` times their number; they sum to 1.
struct WorkerShares {
  Cycles longest;  // of any worker
  double linear1 = 0, linear2 = 0, reduce = 0;
  double operand_stall = 0;  // of Linear-1 and Linear-2: nothing to multiply had come
  double sender_stall = 0;   // of the same: rows of the tile before had not left
  double rest = 0;           // between tasks: waits for other tasks, and the end
};
WorkerShares worker_shares(std::span<const GpuTask> tasks, int num_workers);

struct GpuRunResult {
  std::vector<float> output;                // [num_tokens, hidden]
  std::vector<std::vector<GpuTask>> tasks;  // [rank], by claim index; empty without stamps
  std::vector<Nanos> times;                 // of every repeat, on the GPU
  Nanos stamped{0};                         // of the launch with stamps
  int workers_per_rank = 0;
};

// Of the launch with stamps, as simulated and host runs leave it. Cycles become nanoseconds by what that launch took; a
// task's stall for operands stands at its beginning, that of the sender at its end. What runs beside the workers,
// dispatch, is in no span.
Timeline timeline_of(const GpuRunResult& result);

// A layer as the GPU's kernel cuts it.
MoeProblem make_gpu_problem(const MoeShape& shape, int num_ranks, const Routing& routing, MoePlacement placement = {});

// Inputs of bf16. Bad inputs, a shape that the kernel does not take and a grid that cannot be resident are refused
// before anything is launched. Throws Error(unavailable) without CUDA in the build or a GPU of sm_90.
GpuRunResult run_on_gpu(const Inputs& inputs, const GpuRunOptions& options);

// One rank of a layer with random weights and tokens, timed while its peers only receive, in `options.receive`: what
// they would have sent stands there from the beginning, and the output means nothing. measured_rank() is its schedule.
// `options` but order, claim, rows_to and stamps. Throws as run_on_gpu().
class MeasuredGpuRank {
 public:
  // `problem` is of make_gpu_problem() and must outlive this; `routing` is the one that it was made of.
  MeasuredGpuRank(const MoeProblem& problem, const Routing& routing, int rank, const GpuRunOptions& options);
  ~MeasuredGpuRank();

  int num_workers() const;
  // One launch each: how long it took, and what its workers did when.
  Nanos time(const Order& order, Claim claim, RowsTo rows_to);
  std::vector<GpuTask> tasks(const Order& order, Claim claim, RowsTo rows_to);

 private:
  struct Layer;
  std::unique_ptr<Layer> layer_;
};

// The first task of a rank that is not the one that the schedule has at its claim, in words; empty: there is none.
std::string wrong_task(const Inputs& inputs, const GpuRunOptions& options, const GpuRunResult& result);

// Of both products, gate and up as two: what a rate is of.
double product_flops(const Inputs& inputs);

// Throws Error(usage) that says what the kernel takes: hidden and intermediate in multiples of 8.
void require_gpu_shape(const MoeShape& shape);

}  // namespace xs::moe
