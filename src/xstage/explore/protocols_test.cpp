#include "xstage/explore/protocols.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "xstage/core/json.hpp"
#include "xstage/core/test_support.hpp"

namespace xs::explore {
namespace {

std::vector<Protocol> all_protocols() {
  auto protocols = store_protocols();
  std::ranges::move(bulk_protocols(), std::back_inserter(protocols));
  return protocols;
}

std::vector<std::string> listing(const Program& program) {
  std::vector<std::string> lines;
  for (const auto& instruction : program.instructions()) lines.push_back(program.text(instruction));
  return lines;
}

TEST(Protocols, HoldInEveryOutcome) {
  for (const auto& protocol : all_protocols()) {
    const auto found = explore(protocol.build(""));
    EXPECT_FALSE(found.fault.has_value()) << protocol.name << ": " << found.fault->text;
    EXPECT_EQ(found.outcomes.empty(), false) << protocol.name << " never ends";
    EXPECT_GT(found.num_states, 30u) << protocol.name;
  }
}

TEST(Protocols, MutantsAreKilledByTheFaultTheyCause) {
  for (const auto& protocol : all_protocols()) {
    ASSERT_FALSE(protocol.mutants.empty()) << protocol.name;
    for (const auto& [name, kind, place] : protocol.mutants) {
      SCOPED_TRACE(protocol.name + ": " + name);
      const auto fault = explore(protocol.build(name)).fault;
      ASSERT_TRUE(fault.has_value());
      EXPECT_EQ(fault->kind, kind) << fault->text;
      EXPECT_EQ(fault->place, place) << fault->text;
      EXPECT_NE(fault->text.find(place), std::string::npos) << fault->text;
      // The steps lead to it: the reader's read is among them, the waiter's wait is not.
      const bool named = std::ranges::any_of(fault->steps, [&](const std::string& step) {
        return step.find("read " + fault->place) != std::string::npos;
      });
      EXPECT_EQ(named, kind != FaultKind::deadlock) << fmt::format("{}", fmt::join(fault->steps, "\n"));
    }
  }
}

TEST(Protocols, EveryMutantIsAnotherProgram) {
  for (const auto& protocol : all_protocols()) {
    std::set<std::vector<std::string>> programs{listing(protocol.build(""))};
    for (const auto& mutant : protocol.mutants) {
      EXPECT_TRUE(programs.insert(listing(protocol.build(mutant.name))).second) << protocol.name << ": " << mutant.name;
    }
  }
}

TEST(Protocols, StandInTheDocumentWithTheirMutants) {
  const auto document = read_text(XSTAGE_SOURCE_DIR "/docs/protocol.md");
  for (const auto& protocol : all_protocols()) {
    const auto row = document.find(fmt::format("\n| {} |", protocol.name));
    ASSERT_NE(row, std::string::npos) << protocol.name;
    const auto line = document.substr(row + 1, document.find('\n', row + 1) - row - 1);
    for (const auto& mutant : protocol.mutants) EXPECT_NE(line.find(mutant.name), std::string::npos) << mutant.name;
  }
}

TEST(Protocols, TheMistakesThatDesignNamesAreAmongTheMutants) {
  std::set<std::string> killed;
  for (const auto& result : explore_protocols()) {
    EXPECT_TRUE(result.passed) << result.protocol << ": " << (result.mutant ? result.mutant->name : "as it is");
    if (result.mutant) killed.insert(result.mutant->name);
  }
  for (const char* name :
       {"missing proxy fence before the bulk store", "missing proxy fence after the acquire",
        "missing proxy fence before the refill", "release before all writers arrived", "plain instead of acquire load",
        "equality instead of >=", "flag before data", "one cumulative counter for out-of-order chunks",
        "flag zeroed locally after a peer raised it", "buffer reused before read"}) {
    EXPECT_TRUE(killed.contains(name)) << name;
  }
}

// A counterexample is read by people: it shows the one reordering that the mistake allows, and nothing else.
TEST(Protocols, ACounterexampleTellsTheStory) {
  const auto protocols = all_protocols();
  const auto story = [&](const std::string& name, const std::string& mutant) {
    const auto protocol = std::ranges::find(protocols, name, &Protocol::name);
    return explore(protocol->build(mutant)).fault.value();
  };
  const auto chunks = story("chunks", "one cumulative counter for out-of-order chunks");
  EXPECT_EQ(chunks.text,
            "reader saw chunk[0] old: 0 where 1 was due, after it had passed \"reader: wait counter >= 1 (acquire)\"");
  EXPECT_EQ(chunks.steps, (std::vector<std::string>{
                              "warp 1: store chunk[1] = 1",
                              "warp 1: add 1 to counter (release), now 1",
                              "reader: wait counter >= 1 (acquire), sees 1",
                              "reader: read chunk[0], sees 0",
                          }));
  const auto refill = story("receive", "missing proxy fence before the refill");
  EXPECT_EQ(refill.text,
            "consumer saw stage overwritten: 2 where 1 was due, after it had passed \"consumer: wait full "
            ">= 1 (acquire)\"");
  const std::string overtaken =
      "consumer: add 1 to empty (release), now 1, handing on \"consumer: read stage\", still under way";
  EXPECT_EQ(std::ranges::count(refill.steps, overtaken), 1);
  EXPECT_EQ(refill.steps.back(), "consumer: read stage, sees 2");
  const auto zeroed = story("banks", "flag zeroed locally after a peer raised it");
  EXPECT_NE(zeroed.text.find("\"worker: wait bank[1] >= epoch 1 + 1 (acquire)\" sees epoch 1 + 0"), std::string::npos)
      << zeroed.text;
}

// The judge itself: a mutant without effect survives, and a protocol with a fault does not hold.
TEST(Protocols, SurvivorsAndWrongFaultsDoNotPass) {
  const auto protocols = all_protocols();
  Protocol protocol = *std::ranges::find(protocols, "chunks", &Protocol::name);
  const Mutant real = protocol.mutants[0];
  protocol.mutants = {{"no mistake", real.fault, real.place},
                      {real.name, FaultKind::deadlock, real.place},
                      {real.name, real.fault, "chunk[1]"},
                      real};
  const auto results = explore_protocol(protocol);
  std::vector<bool> passed;
  for (const auto& result : results) passed.push_back(result.passed);
  EXPECT_EQ(passed, (std::vector<bool>{true, false, false, false, true}));

  const auto build = protocol.build;
  protocol.build = [&](std::string_view) { return build(real.name); };
  EXPECT_FALSE(explore_protocol(protocol)[0].passed);
}

}  // namespace
}  // namespace xs::explore
