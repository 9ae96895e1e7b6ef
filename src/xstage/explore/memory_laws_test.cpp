#include <gtest/gtest.h>

#include <algorithm>

#include "xstage/core/test_support.hpp"
#include "xstage/explore/explorer.hpp"

// Laws that hold for every program, on random ones, against an interpreter that knows no reordering at all.

namespace xs::explore {
namespace {

enum class Act { load, store, add, copy };
struct Operation {
  Act act;
  int place, to;  // `to`: of a copy
  Value value;
  bool strong;  // a load that acquires, a store or an addition that releases
};
using Listing = std::vector<std::vector<Operation>>;  // one per thread
using Outcomes = std::set<std::vector<Value>>;
constexpr int kNumPlaces = 2, kRounds = 100;

Listing random_listing(Dice& dice) {
  Listing listing(static_cast<std::size_t>(dice.whole(2, 3)));
  Value next = 1;
  for (auto& thread : listing) {
    for (int left = dice.whole(1, listing.size() == 2 ? 3 : 2); left > 0; --left) {
      const auto act = static_cast<Act>(dice.whole(0, 3));
      const int from = dice.whole(0, kNumPlaces - 1), step = dice.whole(1, kNumPlaces - 1);
      thread.push_back({act, from, (from + step) % kNumPlaces, next++, false});
    }
  }
  return listing;
}

// What the loads saw, then what is left in memory. `fenced`: every operation is over before the next begins.
Outcomes explored(const Listing& listing, bool fenced = false) {
  Program program;
  const Place over = program.place("over");
  std::vector<Place> places;
  for (int i = 0; i < kNumPlaces; ++i) places.push_back(program.place("place"));
  for (const auto& operations : listing) {
    auto thread = program.thread("thread");
    for (const auto& operation : operations) {
      const auto place = places[static_cast<std::size_t>(operation.place)];
      const auto raise = operation.strong ? Ordering::release : Ordering::relaxed;
      switch (operation.act) {
        case Act::load:
          thread.load(place, operation.strong ? Ordering::acquire : Ordering::relaxed);
          break;
        case Act::store:
          thread.store(place, operation.value, raise);
          break;
        case Act::add:
          thread.add(place, operation.value, raise);
          break;
        case Act::copy:
          thread.bulk_store(place, places[static_cast<std::size_t>(operation.to)]);
          if (fenced) thread.wait_group();
      }
      if (fenced) thread.full_fence();
    }
    thread.wait_group();
    thread.add(over, 1);
  }
  auto observer = program.thread("observer");
  observer.wait(over, listing.size());
  for (const Place place : places) observer.load(place);
  return explore(program).outcomes;
}

// One memory, one operation after the other; a copy is a load and a store.
class Interleavings {
 public:
  explicit Interleavings(const Listing& listing) : listing_(listing), at_(listing.size()), saw_(listing.size()) {}
  Outcomes run() {
    go_on();
    return outcomes_;
  }

 private:
  struct Position {
    std::size_t next = 0;
    bool in_copy = false;
    Value copied = 0;
  };

  void go_on() {
    bool is_over = true;
    for (std::size_t thread = 0; thread < listing_.size(); ++thread) {
      if (at_[thread].next == listing_[thread].size()) continue;
      is_over = false;
      const auto at = at_;
      const auto memory = memory_;
      const auto saw = saw_;
      step(listing_[thread][at_[thread].next], at_[thread], saw_[thread]);
      go_on();
      at_ = at, memory_ = memory, saw_ = saw;
    }
    if (!is_over) return;
    std::vector<Value> outcome;
    for (const auto& values : saw_) outcome.insert(outcome.end(), values.begin(), values.end());
    outcome.insert(outcome.end(), memory_.begin(), memory_.end());
    outcomes_.insert(outcome);
  }

  void step(const Operation& operation, Position& at, std::vector<Value>& saw) {
    Value& word = memory_[static_cast<std::size_t>(operation.place)];
    if (operation.act == Act::load) saw.push_back(word);
    if (operation.act == Act::store) word = operation.value;
    if (operation.act == Act::add) word += operation.value;
    if (operation.act == Act::copy && !at.in_copy) {
      at.copied = word;
      at.in_copy = true;
      return;
    }
    if (operation.act == Act::copy) memory_[static_cast<std::size_t>(operation.to)] = at.copied;
    at.in_copy = false;
    ++at.next;
  }

  const Listing& listing_;
  std::vector<Position> at_;
  std::vector<Value> memory_ = std::vector<Value>(kNumPlaces);
  std::vector<std::vector<Value>> saw_;
  Outcomes outcomes_;
};

bool contains(const Outcomes& all, const Outcomes& some) { return std::ranges::includes(all, some); }

TEST(MemoryLaws, WeakMemoryShowsEveryInterleavingAndFullFencesShowNoMore) {
  Dice dice(1);
  std::size_t num_weak = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto listing = random_listing(dice);
    const auto interleaved = Interleavings(listing).run();
    const auto weak = explored(listing);
    EXPECT_TRUE(contains(weak, interleaved)) << "round " << round;
    EXPECT_EQ(explored(listing, true), interleaved) << "round " << round;
    num_weak += weak.size() > interleaved.size() ? 1 : 0;
  }
  EXPECT_GT(num_weak, kRounds / 4u);  // the programs do show the difference
}

TEST(MemoryLaws, AStrongerOrderingAddsNoOutcome) {
  Dice dice(2);
  std::size_t num_fewer = 0;
  for (int round = 0; round < kRounds; ++round) {
    auto listing = random_listing(dice);
    auto before = explored(listing);
    for (auto& thread : listing) {
      for (auto& operation : thread) operation.strong = true;
      const auto after = explored(listing);
      EXPECT_TRUE(contains(before, after)) << "round " << round;
      EXPECT_TRUE(contains(after, Interleavings(listing).run())) << "round " << round;
      num_fewer += after.size() < before.size() ? 1 : 0;
      before = after;
    }
  }
  EXPECT_GT(num_fewer, kRounds / 20u);
}

}  // namespace
}  // namespace xs::explore
