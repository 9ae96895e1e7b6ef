#pragma once

#include <string>
#include <vector>

#include "xstage/cli/command.hpp"
#include "xstage/model/machine.hpp"
#include "xstage/plan/moe_problem.hpp"
#include "xstage/sim/simulate.hpp"

namespace xs::cli {

// What `run moe` and `simulate moe` have in common.
struct MoeOptions {
  std::string model = "deepseek-v3";
  int ranks = 8;
  std::vector<std::int64_t> tokens_per_rank{64};  // one number for all ranks, or one for each
  int shrink = 1;
  std::string routing = "balanced";
  int num_shared = 0;
  std::string expert_map = "contiguous";
  std::int64_t capacity_rows = 0;  // 0: as many as the routing brings
  std::string schedule = "serial";
  std::uint64_t seed = 1;
  std::string machine = "h200";
  std::string path = "st16";
  std::string dst = "nvlink";
  std::string dtype = "bf16";
  std::string claim = "counter";
  int ring_blocks = 0;
  int tiles_in_flight = 2;  // as a kernel that stores one tile while it multiplies the next
  std::string trace;
  std::string schedule_out;
  std::string hidden_states, topk_idx, topk_weights;  // run only
  double clamp = 0;                                   // run only; 0: none
  std::vector<std::string> late, slow;                // simulate only: RANK:US, RANK:FACTOR
  double sm_clock_ghz = 0;                            // simulate only; 0: the machine's
  bool json = false;
};

void add_tiles_in_flight(CLI::App& command, int& tiles_in_flight);
void add_moe_options(CLI::App& command, MoeOptions& options);

// The layer that the options name: as it runs (shrunk) and at full size, with one order for both.
struct MoeCase {
  MoeModel model;
  MoeShape shape;  // shrunk; both with the shared experts that were asked for
  Routing routing;
  std::vector<float> hidden_states;  // from a file, else empty
  Machine machine;
  MoeProblem problem;                    // of `shape`
  MoeProblem full_problem;               // of model.shape
  Order order;                           // unless tasks are given
  std::vector<std::vector<Task>> tasks;  // of a schedule file, for `problem`
  std::string schedule_name;
};

// Nothing is proven about its schedule yet.
MoeCase make_case(const MoeOptions& options);

// Bytes per element on the machine; the CPU ranks compute in fp32.
MoeBytes bytes_of(const std::string& dtype);

// How the ranks differ; empty: not at all.
std::vector<RankCondition> conditions_of(const MoeOptions& options);

// Virtual time of a schedule with every SM of the machine as a worker; spans and levels where a trace is wanted.
Timeline simulate_on(const Schedule& schedule, const Machine& machine, const MoeOptions& options);

// The full-size layer on the machine: rho and the time of every order, the chosen one's shares.
struct Prediction {
  double rho;
  Timeline timeline;  // of the chosen order
  std::vector<std::pair<std::string, Nanos>> orders;
};
Prediction predict_full(const MoeCase& layer, const MoeOptions& options);
Json to_json(const MoeCase& layer, const MoeOptions& options, const Prediction& prediction);
std::string describe(const MoeShape& shape);
// The layer, where it ran and how; the same for programs, in a new document.
std::string headline(const MoeCase& layer, const MoeOptions& options, const std::string& where);
Json describe_json(const char* kind, const MoeCase& layer, const MoeOptions& options);
// Of an output, to compare runs by.
std::string hash(const std::vector<float>& values);

// `run moe --backend cuda`.
struct GpuMoeOptions {
  int device = 0;
  int sms_per_rank = 0;
  int repeats = 11;
  std::string receive = "own";
  double pace = 0;
  Nanos timeout{30e9};
  std::string output;
};
void add_gpu_moe_options(CLI::App& command, GpuMoeOptions& options);
// Options that say something about a GPU only are a mistake without one.
void refuse_gpu_moe_options(const CLI::App& command);
void run_moe_on_gpu(const MoeOptions& options, const GpuMoeOptions& gpu);

}  // namespace xs::cli
