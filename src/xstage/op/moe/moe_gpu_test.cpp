#include "xstage/op/moe/moe_gpu.hpp"

#include "xstage/op/moe/gpu_tiling.hpp"
#include "xstage/op/moe/moe_test_support.hpp"

namespace xs::moe {
namespace {

Inputs bf16_inputs(const MoeShape& shape) {
  return make_inputs(shape, make_routing("zipf", 40, shape.num_experts, shape.topk, 3), {}, 3, DType::bf16);
}

TEST(GpuMoe, AShapeThatTheKernelCannotTakeIsNamed) {
  expect_usage_error([] { require_gpu_shape({100, 64, 4, 2}); }, {"hidden 100", "intermediate 64", "multiples of 8"});
  expect_usage_error([] { require_gpu_shape({64, 60, 4, 2}); }, {"intermediate 60"});
  EXPECT_NO_THROW(require_gpu_shape({2880, 1408, 128, 4}));
  expect_usage_error([] { run_on_gpu(bf16_inputs({100, 64, 4, 2}), {}); }, {"hidden 100"});
}

TEST(GpuMoe, ATaskThatIsNotTheSchedulesIsNamed) {
  const auto inputs = bf16_inputs({64, 136, 4, 2});
  GpuRunOptions options;
  options.num_ranks = 2;
  options.order = {OrderKind::lag, 1};
  const auto problem = make_gpu_problem(inputs.shape, 2, inputs.routing);
  GpuRunResult result;
  for (int rank = 0; rank < 2; ++rank) {
    auto& tasks = result.tasks.emplace_back();
    for (const auto& task : expand(options.order, problem.counts(rank))) tasks.push_back({task, 0, {}, {}, {}, {}});
  }
  EXPECT_EQ(wrong_task(inputs, options, result), "");
  ++result.tasks[1][5].task.tile;
  EXPECT_EQ(wrong_task(inputs, options, result), "claim 5 of rank 1 is another task than in the schedule");
  result.tasks[0].pop_back();
  EXPECT_NE(wrong_task(inputs, options, result).find("rank 0 did"), std::string::npos);
}

// With and without CUDA in the build, with and without a GPU in the machine; moe_device_test has the rest.
TEST(GpuMoe, EitherGivesTheOutputOrSaysWhyNot) {
  const auto inputs = bf16_inputs({64, 136, 4, 2});
  GpuRunOptions options;
  options.num_ranks = 2;
  options.order = {OrderKind::lag, 1};
  try {
    const auto result = run_on_gpu(inputs, options);
    const auto exact = reference(inputs, 0);
    double error = 0, norm = 0;
    for (std::size_t h = 0; h < exact.value.size(); ++h) {
      error += (result.output[h] - exact.value[h]) * (result.output[h] - exact.value[h]);
      norm += exact.value[h] * exact.value[h];
    }
    EXPECT_LT(error, 1e-4 * norm);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unavailable) << error.what();
  }
}

TEST(GpuMoe, SharesOfWorkersSumToOne) {
  using Kind = TaskKind;
  const std::vector<GpuTask> tasks{{{Kind::dispatch, 0, 0}, 0, {0}, {1}, {}, {}},
                                   {{Kind::linear1, 0, 0}, 0, {10}, {50}, {8}, {0}},
                                   {{Kind::linear2, 0, 0}, 1, {20}, {80}, {4}, {16}},
                                   {{Kind::reduce, 0, 0}, 0, {90}, {100}, {2}, {0}}};
  const auto shares = worker_shares(tasks, 2);
  EXPECT_EQ(shares.longest, Cycles{100});
  EXPECT_DOUBLE_EQ(shares.linear1, 0.16);
  EXPECT_DOUBLE_EQ(shares.linear2, 0.20);
  EXPECT_DOUBLE_EQ(shares.operand_stall, 0.06);
  EXPECT_DOUBLE_EQ(shares.sender_stall, 0.08);
  EXPECT_DOUBLE_EQ(shares.reduce, 0.05);
  EXPECT_DOUBLE_EQ(shares.rest, 0.45);
}

}  // namespace
}  // namespace xs::moe
