// run moe --backend cuda: a layer on virtual ranks of a GPU.

#include <algorithm>

#include "xstage/cli/moe_options.hpp"
#include "xstage/core/json.hpp"
#include "xstage/core/npy.hpp"
#include "xstage/op/moe/moe_gpu.hpp"
#include "xstage/report/table.hpp"
#include "xstage/report/trace.hpp"

namespace xs::cli {
namespace {

constexpr const char* kGpuOptions[] = {"--device", "--sms-per-rank", "--repeats", "--receive", "--pace"};

GpuPlace parse_receive(const std::string& text) {
  require(text == "own" || text == "host", "--receive {}: expected own or host", text);
  return text == "own" ? GpuPlace::own : GpuPlace::far;
}

}  // namespace

void add_gpu_moe_options(CLI::App& command, GpuMoeOptions& options) {
  add_number(command, "--device", options.device, 0, 1023, "GPU, of --backend cuda");
  add_number(command, "--sms-per-rank", options.sms_per_rank, 0, 4096, "SMs of every rank; 0: all, in even parts");
  add_number(command, "--repeats", options.repeats, 1, 100000, "Launches; the median counts");
  command
      .add_option("--receive", options.receive,
                  "Where combine slots lie: own memory, or the host's, mapped, which stands in for a peer")
      ->capture_default_str();
  add_number(command, "--pace", options.pace, 0.0, 1.0,
             "Part of the machine's port to there that every rank keeps within; 0: as fast as it goes");
}

void refuse_gpu_moe_options(const CLI::App& command) {
  for (const char* name : kGpuOptions) require(command.count(name) == 0, "{} needs --backend cuda", name);
}

void run_moe_on_gpu(const MoeOptions& options, const GpuMoeOptions& gpu) {
  moe::GpuRunOptions run;
  run.device = gpu.device;
  run.num_ranks = options.ranks;
  run.sms_per_rank = gpu.sms_per_rank;
  run.ring_blocks = options.ring_blocks;
  run.repeats = gpu.repeats;
  run.receive = parse_receive(gpu.receive);
  run.claim = parse_claim(options.claim);
  run.signals.timeout = gpu.timeout;
  require(options.schedule_out.empty(), "--schedule-out needs --backend cpu");
  require_writable({gpu.output, options.trace});
  const auto layer = make_case(options);
  require(layer.tasks.empty(), "--schedule {}: the kernel takes orders, not files: xstage list schedules",
          options.schedule);
  moe::require_gpu_shape(layer.shape);
  run.placement = layer.problem.placement();
  run.order = layer.order;
  if (gpu.pace > 0) {
    const auto port = layer.machine.port("st16", run.receive == GpuPlace::own ? "hbm" : "host");
    run.pace = {{}, port.drain * gpu.pace, port.capacity * gpu.pace};
  }
  find_gpus();  // before inputs are made for none

  Progress progress("run");
  auto inputs = moe::make_inputs(layer.shape, layer.routing, layer.hidden_states, options.seed, DType::bf16);
  if (options.clamp > 0) inputs.clamp = static_cast<float>(options.clamp);
  const auto result = moe::run_on_gpu(inputs, run);
  progress.update(0.5);
  const auto error =
      moe::relative_error(inputs, result.output, 2e10, [&](double done) { progress.update(0.5 + done / 2); });
  const auto wrong_task = moe::wrong_task(inputs, run, result);
  const bool right = wrong_task.empty() && error.value <= moe::kMostRelativeError;
  if (!gpu.output.empty()) {
    write_npy(gpu.output, Array<float>{{layer.routing.num_tokens, layer.shape.hidden}, result.output});
  }

  const auto timeline = moe::timeline_of(result);
  if (!options.trace.empty()) write_text(options.trace, to_trace({{"GPU", &timeline}}));

  auto times = result.times;
  std::ranges::sort(times, {}, &Nanos::value);
  const Nanos median = times[times.size() / 2];
  const double tflops = moe::product_flops(inputs) / median.value * 1e-3;
  if (options.json) {
    Json json = describe_json("moe_gpu_run", layer, options);
    json["claim"] = options.claim;
    json["sms_per_rank"] = gpu.sms_per_rank;
    json["receive"] = gpu.receive;
    json["pace"] = gpu.pace;
    json["verified"] = right;
    json["verification"] = {
        {"tokens", error.num_tokens}, {"relative_error", error.value}, {"tolerance", moe::kMostRelativeError}};
    json["output_hash"] = hash(result.output);
    json["repeats"] = times.size();
    json["us"] = {
        {"median", median.value * 1e-3}, {"least", times.front().value * 1e-3}, {"most", times.back().value * 1e-3}};
    json["product_tflops"] = tflops;
    json["with_stamps_us"] = result.stamped.value * 1e-3;
    json["breakdown"] = xs::to_json(breakdown(timeline));
    for (const auto* unseen : {"link_busy", "overlap_ratio"}) json["breakdown"][unseen] = nullptr;
    print(json);
  } else {
    fmt::print("{}", headline(layer, options, "virtual ranks of a GPU"));
    fmt::print("output hash {}, {:.1e} from the reference (tolerance {:.0e}, {} of {} tokens compared)\n",
               hash(result.output), error.value, moe::kMostRelativeError, error.num_tokens, layer.routing.num_tokens);
    fmt::print("{}", breakdown_table({{"GPU, with stamps", breakdown(timeline)}}));
    if (!options.trace.empty()) fmt::print("trace: {} (open it in https://ui.perfetto.dev)\n", options.trace);
    fmt::print(
        "=> Executed: {:.1f} us [{:.1f}, {:.1f}], median of {} launches; {:.1f} TFLOP/s of products, the sum of "
        "slots in the time; {}.\n",
        median.value * 1e-3, times.front().value * 1e-3, times.back().value * 1e-3, times.size(), tflops,
        right ? "tasks as in the schedule, output as in the reference" : "NOT as the reference or the schedule");
  }
  if (!wrong_task.empty()) fail(ErrorKind::verification, "{}", wrong_task);
  if (!right) {
    fail(ErrorKind::verification, "the output differs from the reference by {:.2e}, {:.2e} is allowed", error.value,
         moe::kMostRelativeError);
  }
}

}  // namespace xs::cli
