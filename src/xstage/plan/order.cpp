#include "xstage/plan/order.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "xstage/core/error.hpp"

namespace xs {
namespace {

struct KindText {
  OrderKind kind;
  std::string_view name;
  std::string_view n;             // what it counts; empty: the order has none
  int OrderDefaults::*otherwise;  // where the bare name finds it; null: it must be given
  std::string_view what;
};

constexpr KindText kKinds[] = {
    {OrderKind::serial, "serial", "", nullptr, "all Linear-1 tiles, then all Linear-2 tiles"},
    {OrderKind::wave, "wave", "local experts per wave", &OrderDefaults::experts_per_wave,
     "serial within N local experts at a time; without N enough to fill the SMs twice, the last wave as full as can "
     "be"},
    {OrderKind::waves, "waves", "parts of the row blocks", nullptr, "serial within each of N even parts of the blocks"},
    {OrderKind::alternate, "alternate", "tiles in turn", &OrderDefaults::num_workers,
     "the shortest warm-up of Linear-1, then N Linear-2 and N Linear-1 tiles in turn; without N as many as workers"},
    {OrderKind::lag, "lag", "row blocks", nullptr,
     "Linear-2 of a block evenly among Linear-1 of the block N later (lag_blocks)"},
};

std::string form(const KindText& text) {
  return fmt::format("{}{}", text.name, text.n.empty() ? "" : text.otherwise == nullptr ? ":N" : "[:N]");
}

const KindText& text_of(OrderKind kind) { return *std::ranges::find(kKinds, kind, &KindText::kind); }

[[noreturn]] void fail_unknown(const std::string& text) {
  std::vector<std::string> forms;
  for (const auto& kind : kKinds) forms.push_back(form(kind));
  fail(ErrorKind::usage,
       "schedule {}: unknown; expected one of {}, each also with +own-last or +own-first, or a schedule file",
       excerpt(text), fmt::join(forms, ", "));
}

// What stands before the first `mark`, and behind it if there is one.
std::pair<std::string_view, std::optional<std::string_view>> split(std::string_view text, char mark) {
  const auto at = text.find(mark);
  if (at == text.npos) return {text, std::nullopt};
  return {text.substr(0, at), text.substr(at + 1)};
}

std::int32_t parse_n(const std::string& text, std::string_view number, const KindText& kind) {
  std::int32_t n = 0;
  const char* last = number.data() + number.size();
  const auto [end, error] = std::from_chars(number.data(), last, n);
  require(error == std::errc() && end == last && n >= 1, "schedule {}: expected {}:N with N >= 1 {}", excerpt(text),
          kind.name, kind.n);
  return n;
}

}  // namespace

std::vector<OrderInfo> list_orders() {
  std::vector<OrderInfo> orders;
  for (const auto& kind : kKinds) orders.push_back({form(kind), std::string(kind.what)});
  orders.push_back({"ORDER+own-last", "remote first: within an expert the next rank's rows first, this rank's last"});
  orders.push_back({"ORDER+own-first", "within an expert this rank's rows first, the previous rank's last"});
  return orders;
}

std::vector<Task> expand(const Order& order, const Counts& counts) {
  std::vector<Task> tasks(static_cast<std::size_t>(counts.num_tasks()));
  for (std::size_t claim = 0; claim < tasks.size(); ++claim) {
    tasks[claim] = task_at(order, counts, static_cast<std::int64_t>(claim));
  }
  return tasks;
}

Order parse_order(const std::string& text, const OrderDefaults& defaults) {
  const auto [kind_text, rotation_text] = split(text, '+');
  const auto [name, number] = split(kind_text, ':');
  const auto* const kind = std::ranges::find(kKinds, name, &KindText::name);
  if (kind == std::end(kKinds) || (number && kind->n.empty())) fail_unknown(text);
  Order order{kind->kind};
  if (!number && kind->otherwise != nullptr) {
    order.n = defaults.*kind->otherwise;
  } else if (!kind->n.empty()) {
    order.n = parse_n(text, number.value_or(""), *kind);
  }
  if (rotation_text) {
    const auto* const rotation = std::ranges::find(kRotationNames, *rotation_text);
    if (rotation == std::end(kRotationNames)) fail_unknown(text);
    order.rotation = static_cast<Rotation>(rotation - std::begin(kRotationNames));
  }
  return order;
}

std::string to_string(const Order& order) {
  const auto& kind = text_of(order.kind);
  std::string text(kind.name);
  if (!kind.n.empty()) text += fmt::format(":{}", order.n);
  if (order.rotation != Rotation::natural) {
    text += fmt::format("+{}", kRotationNames[static_cast<std::size_t>(order.rotation)]);
  }
  return text;
}

Claim parse_claim(const std::string& text) {
  if (text == "static") return Claim::fixed;
  if (text == "counter") return Claim::counter;
  fail(ErrorKind::usage, "claim {}: expected static or counter", excerpt(text));
}

std::string to_string(Claim claim) { return claim == Claim::fixed ? "static" : "counter"; }

}  // namespace xs
