#include "xstage/explore/listing.hpp"

#include "xstage/core/error.hpp"

namespace xs::explore {

bool reads(Kind kind) {
  return kind == Kind::load || kind == Kind::wait || kind == Kind::add || kind == Kind::bulk_read ||
         kind == Kind::bulk_complete;
}

bool writes(Kind kind) {
  return kind == Kind::store || kind == Kind::add || kind == Kind::bulk_write || kind == Kind::bulk_complete;
}

bool is_async(Kind kind) { return kind == Kind::bulk_read || kind == Kind::bulk_write || kind == Kind::bulk_complete; }

bool is_performed(Kind kind) { return kind < Kind::fence; }

std::string to_text(Value value) {
  if (value >> 32 == 0) return fmt::format("{}", value);
  return fmt::format("epoch {} + {}", value >> 32, value & 0xffffffffu);
}

namespace {

std::string suffix(const Instruction& instruction, const std::vector<Program::PlaceInfo>& places) {
  constexpr const char* kOrderings[] = {"relaxed", "acquire", "release", "acquire and release"};
  constexpr const char* kScopes[] = {"CTA", "GPU", "system"};
  const bool is_flag = instruction.kind == Kind::wait || instruction.kind == Kind::add;
  if (!is_flag && instruction.ordering == Ordering::relaxed) return "";
  std::string text = kOrderings[static_cast<std::size_t>(instruction.ordering)];
  if (instruction.scope < places[static_cast<std::size_t>(instruction.place)].scope) {
    text += fmt::format(", {} scope", kScopes[static_cast<std::size_t>(instruction.scope)]);
  }
  return fmt::format(" ({})", text);
}

std::string action(const Instruction& instruction, const std::string& place) {
  const auto value = to_text(instruction.value);
  switch (instruction.kind) {
    case Kind::load:
      return "read " + place;
    case Kind::wait:
      return fmt::format("wait {} {} {}{}", place, instruction.until == Until::equals ? "==" : ">=", value,
                         instruction.until == Until::reaches_unsigned ? " unsigned" : "");
    case Kind::store:
      return fmt::format("store {} = {}", place, value);
    case Kind::add:
      return fmt::format("add {} to {}", value, place);
    case Kind::full_fence:
      return "sequentially consistent fence";
    case Kind::bulk_read:
      return "bulk read of " + place;
    case Kind::bulk_write:
      return "bulk write of " + place;
    case Kind::bulk_complete:
      return "completion on " + place;
    case Kind::fence:
      return "fence";
    case Kind::proxy_fence:
      return "proxy fence";
    case Kind::wait_group:
      return "wait_group";
    case Kind::wait_group_read:
      return "wait_group.read";
  }
  return "unknown instruction";
}

}  // namespace

const std::string& Program::place_name(const Instruction& instruction) const {
  static const std::string none;
  return instruction.place < 0 ? none : places_[static_cast<std::size_t>(instruction.place)].name;
}

std::string Program::text(const Instruction& instruction) const {
  return fmt::format("{}: {}{}", threads_[static_cast<std::size_t>(instruction.thread)],
                     action(instruction, place_name(instruction)), suffix(instruction, places_));
}

Place Program::place(std::string name, Value initial) {
  places_.push_back({std::move(name), Scope::system, initial});
  return Place{static_cast<int>(places_.size()) - 1};
}

Place Program::shared_place(std::string name, Value initial) {
  places_.push_back({std::move(name), Scope::cta, initial});
  return Place{static_cast<int>(places_.size()) - 1};
}

Thread Program::thread(std::string name) {
  threads_.push_back(std::move(name));
  return Thread(*this, static_cast<int>(threads_.size()) - 1);
}

Instruction& Thread::append(Kind kind) {
  auto& instructions = program_->instructions_;
  require(instructions.size() < Program::kMostInstructions, "explore: a program has at most {} instructions",
          Program::kMostInstructions);
  Instruction instruction{kind, index_};
  instruction.guard = guard_;
  instruction.guard_value = guard_value_;
  return instructions.emplace_back(instruction);
}

Instruction& Thread::append(Kind kind, Place place) {
  Instruction& instruction = append(kind);
  instruction.place = static_cast<int>(place);
  return instruction;
}

Load Thread::load(Place place, Ordering ordering) {
  append(Kind::load, place).ordering = ordering;
  return Load{static_cast<int>(program_->instructions_.size()) - 1};
}

void Thread::read(Place place, Value expected) {
  Instruction& instruction = append(Kind::load, place);
  instruction.value = expected;
  instruction.expects = true;
}

void Thread::store(Place place, Value value, Ordering ordering, Scope scope) {
  Instruction& instruction = append(Kind::store, place);
  instruction.value = value;
  instruction.ordering = ordering;
  instruction.scope = scope;
}

void Thread::add(Place place, Value amount, Ordering ordering) {
  Instruction& instruction = append(Kind::add, place);
  instruction.value = amount;
  instruction.ordering = ordering;
}

void Thread::wait(Place place, Value target, Ordering ordering, Until until) {
  Instruction& instruction = append(Kind::wait, place);
  instruction.value = target;
  instruction.ordering = ordering;
  instruction.until = until;
}

void Thread::fence(Scope scope) { append(Kind::fence).scope = scope; }
void Thread::full_fence() { append(Kind::full_fence); }
void Thread::proxy_fence() { append(Kind::proxy_fence); }
void Thread::wait_group() { append(Kind::wait_group); }
void Thread::wait_group_read() { append(Kind::wait_group_read); }

int Thread::bulk_copy(Place from, Place to, bool grouped) {
  append(Kind::bulk_read, from).grouped = grouped;
  const int read = static_cast<int>(program_->instructions_.size()) - 1;
  Instruction& write = append(Kind::bulk_write, to);
  write.grouped = grouped;
  write.source = read;
  return read + 1;
}

void Thread::bulk_store(Place from, Place to) { bulk_copy(from, to, true); }

void Thread::tensor_load(Place from, Place to, Place barrier) {
  const int write = bulk_copy(from, to, false);
  Instruction& complete = append(Kind::bulk_complete, barrier);
  complete.value = 1;
  complete.source = write;
}

Thread Thread::when(Load load, Value value) const {
  Thread guarded = *this;
  guarded.guard_ = static_cast<int>(load);
  guarded.guard_value_ = value;
  return guarded;
}

}  // namespace xs::explore
