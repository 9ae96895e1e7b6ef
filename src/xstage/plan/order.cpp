#include "xstage/plan/order.hpp"

#include <charconv>

#include "xstage/core/error.hpp"

namespace xs {

std::vector<OrderInfo> list_orders() {
  return {{"serial", "all Linear-1 tiles, then all Linear-2 tiles"},
          {"wave[:N]", "serial within N local experts at a time; without N as many as fill the SMs twice"}};
}

std::vector<Task> expand(const Order& order, const Counts& counts) {
  std::vector<Task> tasks(static_cast<std::size_t>(counts.num_tasks()));
  for (std::size_t claim = 0; claim < tasks.size(); ++claim) {
    tasks[claim] = task_at(order, counts, static_cast<std::int64_t>(claim));
  }
  return tasks;
}

Order parse_order(const std::string& text, int experts_per_wave) {
  if (text == "serial") return {OrderKind::serial};
  if (text == "wave") return {OrderKind::wave, experts_per_wave};
  if (text.starts_with("wave:")) {
    int experts = 0;
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data() + 5, last, experts);
    require(error == std::errc() && end == last && experts >= 1,
            "schedule {}: expected wave:N with N >= 1 local experts per wave", text);
    return {OrderKind::wave, experts};
  }
  std::string names;
  for (const auto& order : list_orders()) names += (names.empty() ? "" : ", ") + order.name;
  fail(ErrorKind::usage, "schedule {}: unknown; expected one of {}, or a schedule file", text, names);
}

std::string to_string(const Order& order) {
  return order.kind == OrderKind::serial ? "serial" : fmt::format("wave:{}", order.experts_per_wave);
}

Claim parse_claim(const std::string& text) {
  if (text == "static") return Claim::fixed;
  if (text == "counter") return Claim::counter;
  fail(ErrorKind::usage, "claim {}: expected static or counter", text);
}

}  // namespace xs
