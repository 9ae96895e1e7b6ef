#include "xstage/core/fuzz_support.hpp"
#include "xstage/plan/moe_problem.hpp"

namespace xs {

std::vector<std::string> fuzz_seeds() {
  const MoeProblem even({16, 8, 2, 1}, {4, 8, 16, 2}, 2, 3, {1, 1, 0, 1});
  const MoeProblem uneven({64, 32, 3, 2}, {2, 16, 32, 4, 1}, 1, 5, {7, 0, 3});
  // Numbers near the ends of 32 bits, which mutations of small ones hardly reach.
  const MoeProblem large({16, 8, 1, 1}, {2000000000, 8, 16, 2}, 1, 1, {2147483647});
  return {to_text(to_json(even, even.schedule(Order{}))), to_text(to_json(large, large.schedule(Order{}))),
          to_text(to_json(uneven, uneven.schedule(Order{OrderKind::lag, 2})))};
}

void fuzz_one(std::string_view input) {
  const auto file = if_accepted([&] { return parse_moe_schedule(input, "fuzz.json"); });
  if (!file) return;
  Schedule schedule;
  for (const auto& tasks : file->tasks) schedule.ranks.emplace_back().tasks = tasks;
  const auto again = parse_moe_schedule(to_text(to_json(file->problem, schedule)), "again.json");
  check(again.tasks == file->tasks && again.problem.shape() == file->problem.shape() &&
            again.problem.tiling() == file->problem.tiling() &&
            again.problem.num_tokens() == file->problem.num_tokens(),
        "another schedule when written and read again");
}

}  // namespace xs
