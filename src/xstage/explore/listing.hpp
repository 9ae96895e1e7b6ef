#pragma once

#include <cstdint>
#include <string>
#include <vector>

// A tiny concurrent program, written as a listing per thread: what a publisher and a reader do to a few words of
// memory. Each instruction names its place, its ordering and its scope, as the device code would.
//
// A thread acts through two proxies: its own loads and stores are generic, the reads and writes of its bulk copies and
// tensor loads are asynchronous. memory_model.hpp says what orders what, explorer.hpp finds every outcome.

namespace xs::explore {

using Value = std::uint64_t;

enum class Scope : std::uint8_t { cta, gpu, system };
enum class Ordering : std::uint8_t { relaxed, acquire, release, acquire_release };

// When a wait is over.
enum class Until : std::uint8_t {
  reaches,           // signed difference to the target >= 0, as Signals compares
  equals,            // for mutants
  reaches_unsigned,  // for mutants
};

enum class Kind : std::uint8_t {
  load,
  wait,
  store,
  add,
  full_fence,     // sequentially consistent
  bulk_read,      // of a bulk copy, from its source
  bulk_write,     // of a bulk copy, to its destination
  bulk_complete,  // of a tensor load, on its barrier
  // These are never performed, they only order others.
  fence,  // acquire and release
  proxy_fence,
  wait_group,
  wait_group_read,
};

enum class Place : int {};
enum class Load : int {};  // the instruction that loaded a value

struct Instruction {
  Kind kind;
  int thread;
  int place = -1;
  Value value = 0;  // stored, added, waited for or expected
  Ordering ordering = Ordering::relaxed;
  Scope scope = Scope::system;
  Until until = Until::reaches;
  bool expects = false;  // a load that must see `value`
  int source = -1;       // of a bulk copy: the part of it that goes before
  bool grouped = false;  // of a bulk store: wait_group waits for it
  int guard = -1;        // executed only if that load saw guard_value
  Value guard_value = 0;
};

bool reads(Kind kind);
bool writes(Kind kind);
bool is_async(Kind kind);
bool is_performed(Kind kind);

class Thread;

class Program {
 public:
  // At most so many instructions: one bit each.
  static constexpr std::size_t kMostInstructions = 64;

  struct PlaceInfo {
    std::string name;
    Scope scope;  // of the threads that use it: an ordering of smaller scope orders nothing between them
    Value initial;
  };

  // Memory that the ranks share; data grows with time, so that a smaller value is an older one.
  Place place(std::string name, Value initial = 0);
  // Memory of one thread block: staging, stages, barriers.
  Place shared_place(std::string name, Value initial = 0);
  Thread thread(std::string name);

  const std::vector<PlaceInfo>& places() const { return places_; }
  const std::vector<std::string>& threads() const { return threads_; }
  // Those of one thread stand in its program order.
  const std::vector<Instruction>& instructions() const { return instructions_; }

  std::string text(const Instruction& instruction) const;
  const std::string& place_name(const Instruction& instruction) const;

 private:
  friend class Thread;
  std::vector<PlaceInfo> places_;
  std::vector<std::string> threads_;
  std::vector<Instruction> instructions_;
};

// Appends to one thread of a program, which must outlive it.
class Thread {
 public:
  Load load(Place place, Ordering ordering = Ordering::relaxed);
  // A load of data whose value is wrong unless `expected`.
  void read(Place place, Value expected);
  void store(Place place, Value value, Ordering ordering = Ordering::relaxed, Scope scope = Scope::system);
  void add(Place place, Value amount, Ordering ordering = Ordering::release);
  void wait(Place place, Value target, Ordering ordering = Ordering::acquire, Until until = Until::reaches);

  void fence(Scope scope = Scope::system);
  void full_fence();
  // Both ways between the generic and the asynchronous proxy.
  void proxy_fence();

  // Asynchronous copy of one word; its source is read and its destination written at any later time.
  void bulk_store(Place from, Place to);
  // Sources are read.
  void wait_group_read();
  // Destinations are written, as far as this thread is concerned.
  void wait_group();
  // Asynchronous copy that adds 1 to `barrier` when it is complete.
  void tensor_load(Place from, Place to, Place barrier);

  // The next instruction, if `load` was executed and saw `value`.
  Thread when(Load load, Value value) const;

 private:
  friend class Program;
  Thread(Program& program, int index) : program_(&program), index_(index) {}
  Instruction& append(Kind kind);
  Instruction& append(Kind kind, Place place);
  int bulk_copy(Place from, Place to, bool grouped);

  Program* program_;
  int index_;
  int guard_ = -1;
  Value guard_value_ = 0;
};

// A word of memory in words: small numbers as they are, others as epoch and count.
std::string to_text(Value value);

}  // namespace xs::explore
