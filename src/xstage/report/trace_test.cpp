#include "xstage/report/trace.hpp"

#include <gtest/gtest.h>

#include <map>

#include "xstage/core/json.hpp"

namespace xs {
namespace {

Timeline example_timeline() {
  Timeline timeline;
  timeline.num_ranks = 2;
  timeline.workers_per_rank = 3;
  timeline.makespan = {9000};
  timeline.spans = {
      {0, 0, SpanKind::dependency, {TaskKind::linear1, 4, 5}, 17, {0}, {1000.5}},
      {0, 0, SpanKind::compute, {TaskKind::linear1, 4, 5}, 17, {1000.5}, {2500}},
      {1, 2, SpanKind::sender_stall, {TaskKind::dispatch, 3, 0}, 2, {100}, {250.25}},
      {1, 1, SpanKind::operand_stall, {TaskKind::reduce, 1, 0}, 30, {7000}, {9000}},
  };
  timeline.levels = {{0, {1500}, {65536}}, {1, {2000}, {0}}};
  return timeline;
}

Json events_of(const std::vector<NamedTimeline>& timelines) {
  return Json::parse(to_trace(timelines)).at("traceEvents");
}

std::vector<Json> of_phase(const Json& events, const std::string& phase) {
  std::vector<Json> found;
  for (const auto& event : events) {
    if (event.at("ph") == phase) found.push_back(event);
  }
  return found;
}

TEST(Trace, EverySpanIsACompleteEvent) {
  const auto timeline = example_timeline();
  const auto spans = of_phase(events_of({{"predicted", &timeline}}), "X");
  ASSERT_EQ(spans.size(), timeline.spans.size());
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Span& span = timeline.spans[i];
    EXPECT_EQ(spans[i].at("pid"), span.rank);
    EXPECT_EQ(spans[i].at("tid"), span.worker);
    EXPECT_NEAR(spans[i].at("ts").get<double>(), span.begin.value * 1e-3, 0.0005001);
    EXPECT_NEAR(spans[i].at("dur").get<double>(), (span.end - span.begin).value * 1e-3, 0.0005001);
    EXPECT_EQ(spans[i].at("cat"), kSpanKindNames[static_cast<std::size_t>(span.kind)]);
    EXPECT_EQ(spans[i].at("args").at("claim"), span.claim);
    EXPECT_EQ(spans[i].at("args").at("block"), span.task.block);
    EXPECT_EQ(spans[i].at("args").at("tile"), span.task.tile);
  }
}

TEST(Trace, ComputeIsNamedByItsTaskAndWaitingByItsKind) {
  const auto timeline = example_timeline();
  const auto spans = of_phase(events_of({{"predicted", &timeline}}), "X");
  EXPECT_EQ(spans.at(0).at("name"), "dependency_wait");
  EXPECT_EQ(spans.at(1).at("name"), "linear1");
  EXPECT_EQ(spans.at(2).at("name"), "sender_stall");
  EXPECT_EQ(spans.at(3).at("name"), "operand_stall");
}

TEST(Trace, PortLevelsAreCountersOfTheirRank) {
  const auto timeline = example_timeline();
  const auto counters = of_phase(events_of({{"predicted", &timeline}}), "C");
  ASSERT_EQ(counters.size(), 2u);
  EXPECT_EQ(counters[0].at("pid"), 0);
  EXPECT_EQ(counters[0].at("ts"), 1.5);
  EXPECT_EQ(counters[0].at("args").at("bytes"), 65536);
  EXPECT_EQ(counters[1].at("pid"), 1);
  EXPECT_EQ(counters[1].at("args").at("bytes"), 0);
}

TEST(Trace, EveryRankOfEveryTimelineIsAProcessOfItsOwn) {
  const auto timeline = example_timeline();
  const auto events = events_of({{"CPU", &timeline}, {"predicted", &timeline}});
  std::map<int, std::string> names;
  for (const auto& event : of_phase(events, "M")) {
    EXPECT_EQ(event.at("name"), "process_name");
    names[event.at("pid").get<int>()] = event.at("args").at("name");
  }
  EXPECT_EQ(names, (std::map<int, std::string>{
                       {0, "CPU rank 0"}, {1, "CPU rank 1"}, {2, "predicted rank 0"}, {3, "predicted rank 1"}}));
  EXPECT_EQ(events_of({{"a \"b\"\\", &timeline}}).at(0).at("args").at("name"), "a \"b\"\\ rank 0");
  const auto spans = of_phase(events, "X");
  ASSERT_EQ(spans.size(), 2 * timeline.spans.size());
  for (std::size_t i = 0; i < timeline.spans.size(); ++i) {
    EXPECT_EQ(spans[i + timeline.spans.size()].at("pid").get<int>(), spans[i].at("pid").get<int>() + 2);
  }
}

TEST(Trace, SameTimelineGivesTheSameBytes) {
  const auto one = example_timeline(), same = example_timeline();
  EXPECT_EQ(to_trace({{"predicted", &one}}), to_trace({{"predicted", &same}}));
  auto other = example_timeline();
  other.spans[0].end = {1001.5};
  EXPECT_NE(to_trace({{"predicted", &one}}), to_trace({{"predicted", &other}}));
}

TEST(Trace, OfNothingIsStillATrace) {
  EXPECT_EQ(events_of({}).size(), 0u);
  const Timeline empty;
  EXPECT_EQ(events_of({{"predicted", &empty}}).size(), 0u);
}

}  // namespace
}  // namespace xs
