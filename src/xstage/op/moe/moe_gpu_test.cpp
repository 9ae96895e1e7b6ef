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

TEST(GpuMoe, StampsBecomeATimeline) {
  using Kind = TaskKind;
  GpuRunResult result;
  result.workers_per_rank = 2;
  result.stamped = {200};  // two a cycle
  result.tasks = {{{{Kind::dispatch, 0, 0}, 0, {0}, {30}, {}, {}},
                   {{Kind::linear1, 0, 0}, 0, {10}, {50}, {8}, {0}},
                   {{Kind::linear2, 0, 0}, 1, {20}, {80}, {4}, {16}},
                   {{Kind::reduce, 0, 0}, 0, {90}, {100}, {2}, {0}}}};
  const auto timeline = timeline_of(result);
  const auto expect_span = [&](std::size_t i, int worker, std::int64_t claim, SpanKind kind, double begin, double end) {
    const auto& span = timeline.spans.at(i);
    EXPECT_EQ(span.worker, worker) << i;
    EXPECT_EQ(span.claim, claim) << i;
    EXPECT_EQ(span.kind, kind) << i;
    EXPECT_DOUBLE_EQ(span.begin.value, begin) << i;
    EXPECT_DOUBLE_EQ(span.end.value, end) << i;
  };
  ASSERT_EQ(timeline.spans.size(), 10u);
  expect_span(0, 0, 1, SpanKind::dependency, 0, 20);
  expect_span(1, 0, 1, SpanKind::operand_stall, 20, 36);
  expect_span(2, 0, 1, SpanKind::compute, 36, 100);
  expect_span(3, 0, 3, SpanKind::dependency, 100, 180);
  expect_span(4, 0, 3, SpanKind::operand_stall, 180, 184);
  expect_span(5, 0, 3, SpanKind::compute, 184, 200);
  expect_span(6, 1, 2, SpanKind::dependency, 0, 40);
  expect_span(7, 1, 2, SpanKind::operand_stall, 40, 48);
  expect_span(8, 1, 2, SpanKind::compute, 48, 128);
  expect_span(9, 1, 2, SpanKind::sender_stall, 128, 160);
  const auto shares = breakdown(timeline);
  EXPECT_DOUBLE_EQ(shares.tail, 0.1);
  EXPECT_DOUBLE_EQ(shares.share[static_cast<std::size_t>(SpanKind::sender_stall)], 0.08);
}

}  // namespace
}  // namespace xs::moe
