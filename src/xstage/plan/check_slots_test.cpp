#include "xstage/plan/check_slots.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "xstage/plan/loose_schedule.hpp"

// Absent waits, reuse of slots, rings, and the figures of a schedule: planted by hand.

namespace xs {
namespace {

constexpr auto kRead = AccessMode::read, kWrite = AccessMode::write;

// Two blocks on each of two ranks in a ring of one slot: block 1 takes it when block 0 has left.
class SlotFault : public testing::Test {
 protected:
  const MoeProblem problem_{{64, 32, 2, 1}, {8, 16, 32, 4, 1}, 2, 32, {8, 8, 8, 8}};
  LooseSchedule loose_ = take_apart(problem_.schedule(Order{OrderKind::waves, 2}, {2, 2, 2}));

  // On rank 0: claims 0–1 dispatch, 2–3 linear1(0, ·), 4–5 linear2(0, ·), 6–7 linear1(1, ·), 8–9 linear2(1, ·).
  void SetUp() override {
    ASSERT_EQ(loose_.at(0, 6).task, (Task{TaskKind::linear1, 1, 0}));
    ASSERT_EQ(loose_.at(0, 6).waits.size(), 2u);
    ASSERT_TRUE(faults().empty());
  }
  std::vector<Fault> faults() const { return check(put_together(loose_), 1000); }
  void expect(FaultKind kind, const std::vector<std::string>& texts) const {
    const auto found = faults();
    ASSERT_EQ(found.size(), texts.size()) << found.front().text;
    for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(found[i].text, to_string(kind) + ": " + texts[i]);
  }
};

TEST_F(SlotFault, ALinear1ThatDoesNotWaitForItsRows) {
  std::erase_if(loose_.at(0, 2).waits, [&](const Wait& wait) { return wait.flag == problem_.arrived(0); });
  expect(FaultKind::read_before_written,
         {"rank 0, claim 2, linear1(0, 0): reads rows[0] of rank 0, which rank 0, claim 1, dispatch(0, 0) may not have "
          "written"});
}

TEST_F(SlotFault, ALinear2ThatWaitsForNothing) {
  loose_.at(0, 5).waits.clear();
  const auto found = faults();
  ASSERT_EQ(found.size(), 2u);  // of its rows and of its activations
  EXPECT_EQ(found[1].text,
            "read before written: rank 0, claim 5, linear2(0, 1): reads activations[0] of rank 0, which rank 0, claim "
            "2, linear1(0, 0) may not have written");
}

TEST_F(SlotFault, AReduceThatDoesNotWaitForAPeer) {
  auto& reduce = loose_.ranks[0].tasks.back();
  std::erase_if(reduce.waits, [&](const Wait& wait) { return wait.flag == problem_.combined(1); });
  expect(FaultKind::read_before_written,
         {fmt::format("rank 0, claim {}, {}: reads slots[1] of rank 0, which rank 1, claim 4, linear2(0, 0) may not "
                      "have written",
                      loose_.ranks[0].tasks.size() - 1, to_string(reduce.task))});
}

TEST_F(SlotFault, AReadOfWhatNobodyWrites) {
  loose_.at(0, 4).accesses[0].generation = 2;
  expect(FaultKind::read_before_written,
         {"rank 0, claim 4, linear2(0, 0): reads activations[0] of rank 0 (generation 2), which no task writes"});
}

TEST_F(SlotFault, ALinear1ThatDoesNotWaitForItsSlot) {
  loose_.at(0, 7).waits.pop_back();
  expect(FaultKind::reuse_before_read,
         {"rank 0, claim 7, linear1(1, 1): writes activations[0] of rank 0 (generation 1), which rank 0, claim 4, "
          "linear2(0, 0) may still read"});
}

// A wait for the flag before the right one is no excuse: its readers may still be at work.
TEST_F(SlotFault, ALinear1ThatWaitsForTheWritersOfItsSlotOnly) {
  loose_.at(0, 7).waits.back() = {problem_.activated(0), 2};
  expect(FaultKind::reuse_before_read,
         {"rank 0, claim 7, linear1(1, 1): writes activations[0] of rank 0 (generation 1), which rank 0, claim 4, "
          "linear2(0, 0) may still read"});
}

TEST_F(SlotFault, ASlotOutsideItsRegion) {
  for (const auto& [change, place] : std::vector<std::pair<std::function<void(Access&)>, std::string>>{
           {[](Access& access) { access.slot = 1; }, "activations[1] of rank 0, generation 0"},
           {[](Access& access) { access.slot = -1; }, "activations[-1] of rank 0, generation 0"},
           {[](Access& access) { access.generation = -1; }, "activations[0] of rank 0, generation -1"},
           {[](Access& access) { access.rank = 2; }, "activations[0] of rank 2, generation 0"},
           {[](Access& access) { access.region = 3; }, "region 3[0] of rank 0, generation 0"}}) {
    auto& access = loose_.at(0, 2).accesses[1];
    const auto right = access;
    change(access);
    expect(FaultKind::slot_unknown, {"rank 0, claim 2, linear1(0, 0): writes " + place});
    access = right;
  }
}

TEST_F(SlotFault, ARingThatIsTooSmallForItsOrder) {
  const auto schedule = problem_.schedule(Order{OrderKind::serial});
  const auto found = check(schedule);
  ASSERT_EQ(found.size(), 2u);  // one for each rank
  EXPECT_EQ(found[0].kind, FaultKind::ring_too_small);
  EXPECT_EQ(found[0].text,
            "ring too small: rank 0, claim 4, linear1(1, 0): waits for activations[0] of rank 0, in which rank 0, "
            "claim 7, linear2(0, 1) comes later; 1 slots found, 2 would do");
  EXPECT_TRUE(check(problem_.with_ring(2).schedule(Order{OrderKind::serial})).empty());
}

// Tasks of one rank that touch slot 0 of a region.
Access touch(AccessMode mode, std::int32_t generation = 0) { return {0, 0, generation, 0, mode}; }

std::vector<FaultKind> kinds(const std::vector<LooseTask>& tasks) {
  std::vector<FaultKind> found;
  for (const auto& fault : check(put_together(by_hand({tasks}, 2, {{"box", 1}})), 1000)) found.push_back(fault.kind);
  return found;
}
using Kinds = std::vector<FaultKind>;

TEST(Slots, ASecondGenerationWaitsForAWriterThatNobodyReads) {
  EXPECT_EQ(kinds({{.accesses = {touch(kWrite)}}, {.accesses = {touch(kWrite, 1)}}}), Kinds{FaultKind::written_twice});
  EXPECT_EQ(kinds({{.raises = {{0, 0, 1}}, .accesses = {touch(kWrite)}},
                   {.waits = {{0, 1}}, .accesses = {touch(kWrite, 1)}}}),
            Kinds{});
}

TEST(Slots, WritersOfOneGenerationNeedNoOrder) {
  EXPECT_EQ(kinds({{.accesses = {touch(kWrite)}}, {.accesses = {touch(kWrite)}}}), Kinds{});
}

TEST(Slots, AnUpdateInPlaceReadsOneGenerationAndWritesTheNext) {
  const LooseTask writer{.raises = {{0, 0, 1}}, .accesses = {touch(kWrite)}};
  const LooseTask update{.waits = {{0, 1}}, .accesses = {touch(kRead), touch(kWrite, 1)}};
  EXPECT_EQ(kinds({writer, update}), Kinds{});
  // Another reader of the old content, or another update, may be overtaken.
  const LooseTask reader{.waits = {{0, 1}}, .accesses = {touch(kRead)}};
  EXPECT_EQ(kinds({writer, update, reader}), Kinds{FaultKind::reuse_before_read});
  EXPECT_EQ(kinds({writer, update, update}), (Kinds{FaultKind::reuse_before_read, FaultKind::reuse_before_read}));
}

TEST(Slots, ASkippedGenerationOrdersLikeTheNext) {
  EXPECT_EQ(kinds({{.raises = {{0, 0, 1}}, .accesses = {touch(kWrite, 3)}},
                   {.waits = {{0, 1}}, .raises = {{0, 1, 1}}, .accesses = {touch(kRead, 3)}},
                   {.waits = {{1, 1}}, .accesses = {touch(kWrite, 9)}}}),
            Kinds{});
}

// Random tasks that touch slots at random: the checker says what holding back one task after the other shows.
TEST(Slots, AgreeWithWhoCanBeginWhileAnotherIsAtWork) {
  int accepted = 0, rejected = 0;
  for (std::uint64_t seed = 0; seed < 6000; ++seed) {
    auto loose = take_apart(random_waits(seed));
    if (!check(put_together(loose)).empty()) continue;
    Dice dice(seed);
    loose.regions = {{"box", 2}};
    const double density = dice.between(0.1, 0.5);
    for (auto& rank : loose.ranks) {
      for (auto& task : rank.tasks) {
        while (chance(dice, density)) {
          task.accesses.push_back({dice.whole(0, static_cast<int>(loose.ranks.size()) - 1), dice.whole(0, 1),
                                   dice.whole(0, 2), 0, chance(dice, 0.5) ? kRead : kWrite});
        }
      }
    }
    const auto schedule = put_together(loose);
    struct Use {
      Access access;
      TaskId task;
    };
    std::vector<Use> uses;
    std::map<TaskId, std::vector<TaskId>> begun_without;
    for (std::int32_t rank = 0; rank < std::ssize(schedule.ranks); ++rank) {
      const auto& accesses = schedule.ranks[static_cast<std::size_t>(rank)].accesses;
      for (std::int32_t claim = 0; claim < static_cast<std::int32_t>(accesses.size()); ++claim) {
        for (const auto& access : accesses[static_cast<std::size_t>(claim)]) uses.push_back({access, {rank, claim}});
        begun_without[{rank, claim}] = begin_without(schedule, {rank, claim});
      }
    }
    const auto same_slot = [](const Access& a, const Access& b) { return a.rank == b.rank && a.slot == b.slot; };
    const auto right = [&](const Use& use) {
      bool written = use.access.mode == kWrite;
      for (const auto& other : uses) {
        if (!same_slot(use.access, other.access)) continue;
        const bool contents =
            use.access.mode == kRead && other.access.mode == kWrite && other.access.generation == use.access.generation;
        const bool old = use.access.mode == kWrite && other.access.generation < use.access.generation;
        written = written || contents;
        if (!contents && !old) continue;
        const auto& begun = begun_without[other.task];
        if (other.task != use.task && std::ranges::find(begun, use.task) != begun.end()) return false;
      }
      return written;
    };
    const bool expected = std::ranges::all_of(uses, right);
    ++(expected ? accepted : rejected);
    const auto faults = check(schedule);
    EXPECT_EQ(faults.empty(), expected) << "seed " << seed << (faults.empty() ? "" : "\n" + faults.front().text);
  }
  EXPECT_GT(accepted, 300);
  EXPECT_GT(rejected, 300);
}

}  // namespace
}  // namespace xs
