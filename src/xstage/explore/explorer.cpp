#include "xstage/explore/explorer.hpp"

#include <algorithm>
#include <bit>
#include <queue>
#include <tuple>
#include <unordered_map>

#include "xstage/core/error.hpp"
#include "xstage/core/random.hpp"
#include "xstage/explore/memory_model.hpp"

namespace xs::explore {
namespace {

// performed | per place: value, carried, carried_async | per instruction that needs it: what it saw or acquired
using State = std::vector<std::uint64_t>;

struct StateHash {
  std::size_t operator()(const State& state) const {
    std::uint64_t hash = 0;
    for (const auto word : state) hash = mix64(hash ^ word);
    return hash;
  }
};

constexpr Value kNotExecuted = ~Value{0};  // what a load saw whose guard did not hold

// How a state is reached with the fewest reorderings.
struct Step {
  const State* from = nullptr;
  std::size_t instruction = 0;
  int reorderings = 0;
  bool is_left = false;
};

class Explorer {
 public:
  Explorer(const Program& program, std::size_t most_states)
      : program_(program), all_(program.instructions()), rules_(rules_of(program)), most_states_(most_states) {
    std::size_t size = 1 + 3 * program.places().size();
    Mask acquired = 0, copied = 0;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      for (const Before* before : {&rules_[i].before, &rules_[i].carried, &rules_[i].carried_async}) {
        acquired |= before->acquired | before->acquired_async;
      }
      if (all_[i].source >= 0) copied |= bit(static_cast<std::size_t>(all_[i].source));
    }
    const auto reserve = [&](bool needed, std::size_t words) {
      const std::size_t slot = needed ? size : 0;
      if (needed) size += words;
      return slot;
    };
    for (std::size_t i = 0; i < all_.size(); ++i) {
      saw_.push_back(reserve(all_[i].kind == Kind::load || (copied & bit(i) && reads(all_[i].kind)), 1));
      acquired_.push_back(reserve(acquired & bit(i), 2));
    }
    start_.resize(size);
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (!is_performed(all_[i].kind)) start_[0] |= bit(i);
    }
    for (std::size_t place = 0; place < program.places().size(); ++place) {
      start_[1 + 3 * place] = program.places()[place].initial;
    }
  }

  Exploration run() {
    Exploration result;
    visit(start_, {});
    while (!result.fault && !open_.empty()) {
      const State& state = *std::get<const State*>(open_.top());
      open_.pop();
      if (std::exchange(seen_.at(state).is_left, true)) continue;
      result.fault = wrong_read(state);
      if (!result.fault && !go_on(state)) {
        if (state[0] == everything()) {
          result.outcomes.insert(outcome(state));
        } else {
          result.fault = deadlock(state);
        }
      }
    }
    result.num_states = seen_.size();
    return result;
  }

 private:
  bool go_on(const State& state) {
    bool goes_on = false;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (!can_perform(state, i)) continue;
      goes_on = true;
      // A release that is seen before what it hands on looks odder than a load that is satisfied early.
      const auto [overtaken, handed_on] = reorderings(state, i);
      const int cost = std::popcount(overtaken) + 2 * std::popcount(handed_on);
      visit(perform(state, i), {&state, i, seen_.at(state).reorderings + cost});
    }
    return goes_on;
  }

  void visit(State state, const Step& step) {
    const auto [place, is_new] = seen_.try_emplace(std::move(state), step);
    if (!is_new && place->second.reorderings <= step.reorderings) return;
    place->second = step;
    require(seen_.size() <= most_states_, "explore: the program has more than {} states; make it smaller",
            most_states_);
    open_.emplace(step.reorderings, ++num_visits_, &place->first);
  }

  // What is still under way when an instruction is performed: earlier ones of its thread, and those that it hands on to
  // whoever acquires from it.
  std::pair<Mask, Mask> reorderings(const State& state, std::size_t i) const {
    if (is_skipped(state, all_[i])) return {};
    Mask earlier = 0;
    for (std::size_t j = 0; j < i; ++j) {
      if (all_[j].thread == all_[i].thread) earlier |= bit(j);
    }
    const Mask handed_on = pending(state, rules_[i].carried);
    return {earlier & ~state[0] & ~handed_on, handed_on};
  }

  Mask everything() const { return all_.size() == 64 ? ~Mask{0} : bit(all_.size()) - 1; }
  std::size_t value_slot(const Instruction& instruction) const {
    return 1 + 3 * static_cast<std::size_t>(instruction.place);
  }

  // What is ordered before a point and not performed yet.
  Mask pending(const State& state, const Before& before) const {
    Mask mask = before.own;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (before.acquired & bit(i)) mask |= state[acquired_[i]];
      if (before.acquired_async & bit(i)) mask |= state[acquired_[i] + 1];
    }
    return mask & ~state[0];
  }

  bool is_skipped(const State& state, const Instruction& instruction) const {
    return instruction.guard >= 0 &&
           state[saw_[static_cast<std::size_t>(instruction.guard)]] != instruction.guard_value;
  }

  static bool is_over(const Instruction& wait, Value value) {
    switch (wait.until) {
      case Until::reaches:
        return static_cast<std::int64_t>(value - wait.value) >= 0;
      case Until::equals:
        return value == wait.value;
      case Until::reaches_unsigned:
        return value >= wait.value;
    }
    return false;
  }

  bool can_perform(const State& state, std::size_t i) const {
    const Rule& rule = rules_[i];
    if (state[0] & bit(i) || rule.after & ~state[0]) return false;
    if (is_skipped(state, all_[i])) return true;
    if (all_[i].kind == Kind::wait && !is_over(all_[i], state[value_slot(all_[i])])) return false;
    return (pending(state, rule.before) & rule.meets) == 0;
  }

  State perform(const State& state, std::size_t i) const {
    const Instruction& instruction = all_[i];
    State next = state;
    next[0] |= bit(i);
    if (is_skipped(state, instruction)) {
      if (saw_[i]) next[saw_[i]] = kNotExecuted;
    } else if (instruction.place >= 0) {
      access(state, next, i);
    }
    // What is performed is visible to all: nobody need remember that it was ordered.
    for (std::size_t place = 0; place < program_.places().size(); ++place) {
      for (const std::size_t carried : {2 + 3 * place, 3 + 3 * place}) next[carried] &= ~next[0];
    }
    for (const std::size_t slot : acquired_) {
      for (const std::size_t acquired : {slot, slot + 1}) {
        if (slot) next[acquired] &= ~next[0];
      }
    }
    return next;
  }

  void access(const State& state, State& next, std::size_t i) const {
    const Instruction& instruction = all_[i];
    const std::size_t slot = value_slot(instruction);
    if (saw_[i]) next[saw_[i]] = state[slot];
    if (acquired_[i])
      std::copy_n(state.begin() + static_cast<std::ptrdiff_t>(slot) + 1, 2,
                  next.begin() + static_cast<std::ptrdiff_t>(acquired_[i]));
    if (!writes(instruction.kind)) return;
    // An addition hands on what the ones before it did (a release sequence), a store only its own.
    const bool adds = reads(instruction.kind);
    const bool copies = instruction.kind == Kind::bulk_write;
    const Value operand = copies ? state[saw_[static_cast<std::size_t>(instruction.source)]] : instruction.value;
    next[slot] = operand + (adds ? state[slot] : 0);
    next[slot + 1] = pending(state, rules_[i].carried) | (adds ? state[slot + 1] : 0);
    next[slot + 2] = pending(state, rules_[i].carried_async) | (adds ? state[slot + 2] : 0);
  }

  // A read that saw the wrong value, once the waits before it are over: until then the value might be discarded.
  std::optional<Fault> wrong_read(const State& state) const {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const Instruction& read = all_[i];
      if (!read.expects || ((rules_[i].committed_by | bit(i)) & ~state[0])) continue;
      const Value saw = state[saw_[i]];
      if (saw == read.value || saw == kNotExecuted) continue;
      const bool older = static_cast<std::int64_t>(saw - read.value) < 0;
      std::string after;
      for (std::size_t wait = 0; wait < i; ++wait) {
        if (rules_[i].committed_by & bit(wait)) after = fmt::format(", after it had passed \"{}\"", text(wait));
      }
      return Fault{older ? FaultKind::stale_read : FaultKind::overwritten_read, program_.place_name(read),
                   fmt::format("{} saw {} {}: {} where {} was due{}", thread(read), program_.place_name(read),
                               older ? "old" : "overwritten", to_text(saw), to_text(read.value), after),
                   steps_to(state)};
    }
    return std::nullopt;
  }

  Fault deadlock(const State& state) const {
    Fault fault{FaultKind::deadlock, "", "nothing can go on", steps_to(state)};
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (state[0] & bit(i) || rules_[i].after & ~state[0] || all_[i].kind != Kind::wait) continue;
      if (fault.place.empty()) fault.place = program_.place_name(all_[i]);
      fault.text += fmt::format("; \"{}\" sees {}", text(i), to_text(state[value_slot(all_[i])]));
    }
    return fault;
  }

  std::vector<Value> outcome(const State& state) const {
    std::vector<Value> saw;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (all_[i].kind == Kind::load && !all_[i].expects) saw.push_back(state[saw_[i]]);
    }
    return saw;
  }

  std::vector<std::string> steps_to(const State& state) const {
    std::vector<std::string> steps;
    for (Step step = seen_.at(state); step.from != nullptr; step = seen_.at(*step.from)) {
      steps.push_back(describe(*step.from, step.instruction));
    }
    std::ranges::reverse(steps);
    return steps;
  }

  std::string describe(const State& state, std::size_t i) const {
    const Instruction& instruction = all_[i];
    std::string step = text(i);
    if (is_skipped(state, instruction)) return step + ", not executed";
    if (reads(instruction.kind) && !writes(instruction.kind)) {
      step += fmt::format(", sees {}", to_text(state[value_slot(instruction)]));
    } else if (reads(instruction.kind) || instruction.kind == Kind::bulk_write) {
      step += fmt::format(", now {}", to_text(perform(state, i)[value_slot(instruction)]));
    }
    const auto [overtaken, handed_on] = reorderings(state, i);
    if (overtaken) step += ", overtaking " + list(overtaken);
    if (handed_on) step += fmt::format(", handing on {}, still under way", list(handed_on));
    return step;
  }

  std::string list(Mask instructions) const {
    std::string text;
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (instructions & bit(i)) text += fmt::format("{}\"{}\"", text.empty() ? "" : " and ", this->text(i));
    }
    return text;
  }

  std::string text(std::size_t i) const { return program_.text(all_[i]); }
  const std::string& thread(const Instruction& instruction) const {
    return program_.threads()[static_cast<std::size_t>(instruction.thread)];
  }

  const Program& program_;
  const std::vector<Instruction>& all_;
  const std::vector<Rule> rules_;
  const std::size_t most_states_;
  // Where the words of an instruction lie in a state; 0: it has none.
  std::vector<std::size_t> saw_;
  std::vector<std::size_t> acquired_;
  State start_;
  std::unordered_map<State, Step, StateHash> seen_;
  // Fewest reorderings first, then first come, first served.
  using Open = std::tuple<int, std::size_t, const State*>;
  std::priority_queue<Open, std::vector<Open>, std::greater<>> open_;
  std::size_t num_visits_ = 0;
};

}  // namespace

std::string_view to_string(FaultKind kind) {
  switch (kind) {
    case FaultKind::stale_read:
      return "stale read";
    case FaultKind::overwritten_read:
      return "overwritten read";
    case FaultKind::deadlock:
      return "deadlock";
  }
  return "unknown fault";
}

Exploration explore(const Program& program, std::size_t most_states) { return Explorer(program, most_states).run(); }

}  // namespace xs::explore
