#include "xstage/explore/memory_model.hpp"

#include <optional>

namespace xs::explore {
namespace {

bool acquires(Ordering ordering) { return ordering == Ordering::acquire || ordering == Ordering::acquire_release; }
bool releases(Ordering ordering) { return ordering == Ordering::release || ordering == Ordering::acquire_release; }
bool is_fence(Kind kind) { return kind == Kind::fence || kind == Kind::full_fence; }

class Model {
 public:
  explicit Model(const Program& program) : program_(program), all_(program.instructions()) {}

  Rule rule(std::size_t index) const {
    const auto& own = all_[index];
    Rule rule;
    for (std::size_t earlier = 0; earlier < index; ++earlier) {
      if (all_[earlier].thread != own.thread) continue;
      if (is_ordered(earlier, index)) rule.after |= bit(earlier);
      if (all_[earlier].kind == Kind::wait) rule.committed_by |= bit(earlier);
    }
    for (std::size_t other = 0; other < all_.size(); ++other) {
      const bool meets = own.kind == Kind::full_fence || (own.place >= 0 && own.place == all_[other].place);
      if (is_performed(all_[other].kind) && meets) rule.meets |= bit(other);
    }
    rule.before = is_async(own.kind) ? before_async(index) : before_generic(index);
    if (const auto point = release_point(index)) {
      rule.carried = before_generic(*point);
      rule.carried_async = before_async(*point);
    }
    return rule;
  }

 private:
  // An ordering of too small a scope orders nothing.
  bool wide_enough(Scope scope, const Instruction& access) const {
    return access.place >= 0 && scope >= program_.places()[static_cast<std::size_t>(access.place)].scope;
  }

  // The last instruction of the thread of `end` in [begin, end] that is a fence and wide enough for `access`.
  std::optional<std::size_t> last_fence(std::size_t begin, std::size_t end, const Instruction& access) const {
    for (std::size_t i = end + 1; i-- > begin;) {
      if (all_[i].thread == all_[end].thread && is_fence(all_[i].kind) && wide_enough(all_[i].scope, access)) return i;
    }
    return std::nullopt;
  }

  // Whether what `load` saw is acquired at a later point of its thread.
  bool is_acquired(std::size_t load, std::size_t point) const {
    const auto& access = all_[load];
    if (!reads(access.kind) || is_async(access.kind)) return false;
    return (acquires(access.ordering) && wide_enough(access.scope, access)) ||
           last_fence(load, point, access).has_value();
  }

  // Two instructions of one thread.
  bool is_ordered(std::size_t earlier, std::size_t later) const {
    const auto &first = all_[earlier], &second = all_[later];
    if (!is_performed(first.kind)) return false;
    const int index = static_cast<int>(earlier);
    if (second.source == index || second.guard == index) return true;
    if (is_async(first.kind)) return false;
    if (first.kind == Kind::full_fence || second.kind == Kind::full_fence) return true;
    if (first.kind == Kind::wait && (writes(second.kind) || is_async(second.kind))) return true;
    return is_acquired(earlier, later);
  }

  // For the bulk stores of its thread, the last wait_group in front of `point` is the one that counts.
  bool is_waited_for(std::size_t copy, std::size_t point) const {
    if (!all_[copy].grouped) return false;
    for (std::size_t i = copy; i < point; ++i) {
      if (all_[i].thread != all_[copy].thread) continue;
      if (all_[i].kind == Kind::wait_group) return true;
      if (all_[i].kind == Kind::wait_group_read && all_[copy].kind == Kind::bulk_read) return true;
    }
    return false;
  }

  Before before_generic(std::size_t point) const {
    Before before;
    for (std::size_t i = 0; i < point; ++i) {
      if (all_[i].thread != all_[point].thread || !is_performed(all_[i].kind)) continue;
      if (!is_async(all_[i].kind) || is_waited_for(i, point)) before.own |= bit(i);
      if (is_acquired(i, point)) before.acquired |= bit(i);
    }
    return before;
  }

  // All that was ordered for the generic proxy at the last proxy fence, and what became known for this one since.
  Before before_async(std::size_t point) const {
    Before before;
    for (std::size_t i = 0; i < point; ++i) {
      if (all_[i].thread != all_[point].thread) continue;
      if (all_[i].kind == Kind::proxy_fence) before = before_generic(i);
    }
    for (std::size_t i = 0; i < point; ++i) {
      if (all_[i].thread != all_[point].thread) continue;
      if (is_async(all_[i].kind) && is_waited_for(i, point)) before.own |= bit(i);
      if (is_acquired(i, point)) before.acquired_async |= bit(i);
    }
    return before;
  }

  // Where the order that a write hands on ends: at the write itself, or at a fence before it.
  std::optional<std::size_t> release_point(std::size_t index) const {
    const auto& access = all_[index];
    if (!writes(access.kind) || is_async(access.kind)) return std::nullopt;
    if (releases(access.ordering) && wide_enough(access.scope, access)) return index;
    return last_fence(0, index, access);
  }

  const Program& program_;
  const std::vector<Instruction>& all_;
};

}  // namespace

std::vector<Rule> rules_of(const Program& program) {
  const Model model(program);
  std::vector<Rule> rules;
  for (std::size_t i = 0; i < program.instructions().size(); ++i) rules.push_back(model.rule(i));
  return rules;
}

}  // namespace xs::explore
