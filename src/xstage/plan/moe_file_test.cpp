#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "xstage/core/json.hpp"
#include "xstage/core/test_support.hpp"
#include "xstage/plan/check.hpp"
#include "xstage/plan/random_problem.hpp"

namespace xs {
namespace {

MoeScheduleFile write_and_read(const Json& json) { return parse_moe_schedule(to_text(json), "schedule.json"); }

Json small() {
  const MoeProblem problem({16, 8, 2, 1}, {4, 8, 16, 2}, 2, 3, {1, 1, 0, 1});
  return to_json(problem, problem.schedule(Order{}));
}

TEST(MoeFile, RoundTripGivesTheSameProblemAndTasks) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const auto random = random_problem(seed);
    const auto problem = random.problem.with_ring(static_cast<int>(seed % 3));
    const auto schedule = problem.schedule(random_order(seed));
    SCOPED_TRACE(random.what);
    const auto read = write_and_read(to_json(problem, schedule));
    EXPECT_EQ(read.problem.shape(), problem.shape());
    EXPECT_EQ(read.problem.tiling(), problem.tiling());
    EXPECT_EQ(read.problem.num_ranks(), problem.num_ranks());
    EXPECT_EQ(read.problem.num_tokens(), problem.num_tokens());
    EXPECT_EQ(read.problem.placement(), problem.placement());
    EXPECT_TRUE(std::ranges::equal(read.problem.rows(), problem.rows()));
    ASSERT_EQ(read.tasks.size(), schedule.ranks.size());
    for (std::size_t rank = 0; rank < read.tasks.size(); ++rank) {
      EXPECT_EQ(read.tasks[rank], schedule.ranks[rank].tasks);
    }
  }
}

TEST(MoeFile, AProblemThatNamesNoRingHasNone) {
  Json json = small();
  json["problem"]["ring_blocks"] = 1;
  EXPECT_EQ(write_and_read(json).problem.tiling().ring_blocks, 1);
  json["problem"].erase("ring_blocks");
  EXPECT_EQ(write_and_read(json).problem.tiling().ring_blocks, 0);
}

TEST(MoeFile, AProblemThatNamesNoPlacementHasAnEvenOneWithoutSharedExperts) {
  const auto json = small();
  for (const char* field : {"num_shared", "tokens_per_rank", "holders"}) EXPECT_FALSE(json["problem"].contains(field));
  const auto read = write_and_read(json).problem;
  EXPECT_EQ(read.shape().num_shared, 0);
  EXPECT_EQ(read.placement().tokens, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(read.placement().experts, contiguous_experts(2, 2));
}

// Order and completeness are the checker's to judge, not the reader's.
TEST(MoeFile, TasksOutsideTheProblemAreReadAsTheyStand) {
  Json json = small();
  json["ranks"][1] = {{"linear2", -1, 2147483647}};
  EXPECT_EQ(write_and_read(json).tasks[1], (std::vector<Task>{{TaskKind::linear2, -1, 2147483647}}));
  json["ranks"][1] = Json::array();
  EXPECT_TRUE(write_and_read(json).tasks[1].empty());
}

TEST(MoeFile, MalformedTasksAreUsageErrorsThatNameTheFileAndThePlace) {
  const auto expect = [&](const Json& task, const std::string& what) {
    Json json = small();
    json["ranks"][1][2] = task;
    expect_usage_error([&] { write_and_read(json); }, {"schedule.json: ranks[1][2]: " + what});
  };
  const std::string shape = "expected [\"kind\", block, tile], found ";
  expect(Json::array({"linear1", 0}), shape + "[\"linear1\",0]");
  expect(Json::array({"linear1", 0, 0, 0}), shape);
  expect(Json::array({0, "linear1", 0}), shape);
  expect(Json::array({"linear1", 0.5, 0}), shape + "[\"linear1\",0.5,0]");
  expect(Json::array({"linear1", 0, "0"}), shape);
  expect(Json::array({"linear1", 4294967296, 0}), shape);
  expect(Json::array({"linear1", 0, 18446744073709551615u}), shape);
  expect("linear1", shape);
  expect(Json::array({"linear3", 0, 0}),
         "task kind \"linear3\" is unknown; expected one of dispatch, linear1, linear2, reduce");
}

TEST(MoeFile, MalformedDocumentsAreUsageErrorsThatNameTheFile) {
  const auto expect = [&](const std::function<void(Json&)>& change, const std::string& what) {
    Json json = small();
    change(json);
    expect_usage_error([&] { write_and_read(json); }, {"schedule.json: " + what});
  };
  expect([](Json& json) { json["kind"] = "machine_profile"; }, "expected a file of kind \"moe_schedule\"");
  expect([](Json& json) { json.erase("ranks"); }, "the field \"ranks\" is missing");
  expect([](Json& json) { json["ranks"] = Json{{"0", Json::array()}, {"1", Json::array()}}; }, "the field \"ranks\"");
  expect([](Json& json) { json["ranks"][0] = "serial"; }, "ranks[0]: expected an array of tasks, found string");
  expect([](Json& json) { json["ranks"].erase(1); }, "the problem has 2 ranks, the schedule 1");
  expect([](Json& json) { json["ranks"].push_back(Json::array()); }, "the problem has 2 ranks, the schedule 3");
  expect([](Json& json) { json.erase("problem"); }, "the field \"problem\" is missing");
  expect([](Json& json) { json["problem"] = 1; }, "problem: expected an object");
  expect([](Json& json) { json["problem"]["topk"] = "2"; }, "problem: the field \"topk\"");
  expect([](Json& json) { json["problem"]["rows"].push_back(1); }, "problem: row counts: 4 expected");
  expect([](Json& json) { json["problem"]["rows"][0] = -1; }, "problem: row counts must not be negative");
  expect([](Json& json) { json["problem"]["num_ranks"] = 0; }, "problem: ranks must be at least 1");
  expect([](Json& json) { json["problem"]["block_rows"] = 0; }, "problem: MoE tiling");
  expect([](Json& json) { json["problem"]["ring_blocks"] = -1; }, "problem: MoE tiling");
  expect([](Json& json) { json["problem"]["ring_blocks"] = 0.5; }, "problem: the field \"ring_blocks\"");
  expect([](Json& json) { json["problem"]["num_shared"] = -1; }, "problem: MoE shape: shared experts");
  expect([](Json& json) { json["problem"]["tokens_per_rank"] = {3}; }, "problem: tokens per rank: 2 ranks expected");
  expect([](Json& json) { json["problem"]["tokens_per_rank"] = {3, 1}; }, "problem: tokens per rank: their sum 4");
  expect([](Json& json) { json["problem"]["tokens_per_rank"] = {4, -1}; }, "problem: tokens per rank must not be neg");
  expect([](Json& json) { json["problem"]["holders"] = {{0}}; }, "problem: expert map: 2 experts expected, 1 found");
  expect([](Json& json) { json["problem"]["holders"] = {{0}, {2}}; }, "problem: expert map: expert 1 lies on rank 2");
  for (const std::string key : {"hidden", "intermediate", "num_experts", "topk", "num_ranks", "num_tokens",
                                "block_rows", "linear1_cols", "linear2_cols", "reduce_tokens", "rows"}) {
    expect([&](Json& json) { json["problem"].erase(key); }, "problem: the field \"" + key + "\" is missing");
  }
}

// A file of a few lines must not make gigabytes of blocks, nor an endless number of them.
TEST(MoeFile, ProblemsBeyondAnyMachineAreRefused) {
  Json json = small();
  auto& problem = json["problem"];
  problem["rows"] = {2147483647, 0, 0, 0};
  problem["block_rows"] = 1;
  expect_usage_error([&] { write_and_read(json); }, {"schedule.json: problem: ", "2147483647 rows", "larger blocks"});
  problem["block_rows"] = 2000000000;
  const auto two_blocks = write_and_read(json).problem;
  EXPECT_EQ(two_blocks.num_blocks(0), 2);
  EXPECT_TRUE(inspect(two_blocks.schedule(Order{})).faults.empty());
  problem["num_experts"] = 1;
  problem["num_ranks"] = 5000;
  problem["rows"] = std::vector<int>(5000, 0);
  expect_usage_error([&] { write_and_read(json); }, {"schedule.json: problem: ", "ranks must be at most 4096"});
}

TEST(MoeFile, AMissingFileIsAUsageErrorThatNamesIt) {
  expect_usage_error([] { read_moe_schedule("none.json"); }, {"none.json: no such file"});
}

}  // namespace
}  // namespace xs
