#include "xstage/report/table.hpp"

#include <algorithm>

#include "xstage/core/json.hpp"

namespace xs {

Table::Table(std::vector<std::string> header, std::string align) : align_(std::move(align)), rows_{std::move(header)} {
  if (align_.empty()) align_ = "l" + std::string(rows_.front().size() - 1, 'r');
  check(align_.size() == rows_.front().size(), "table: {} columns, {} alignments", rows_.front().size(), align_.size());
}

void Table::add(std::vector<std::string> row) {
  check(row.size() == align_.size(), "table: {} columns, a row of {}", align_.size(), row.size());
  rows_.push_back(std::move(row));
}

std::string Table::text() const {
  std::vector<std::size_t> width(rows_.front().size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += align_[i] == 'l' ? fmt::format("  {:<{}}", row[i], width[i]) : fmt::format("  {:>{}}", row[i], width[i]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string breakdown_table(const std::vector<NamedBreakdown>& columns) {
  std::vector<std::string> header{""};
  for (const auto& column : columns) header.push_back(column.name);
  Table table(header);
  const auto row = [&](std::string name, auto&& cell) {
    std::vector<std::string> cells{std::move(name)};
    for (const auto& column : columns) cells.push_back(cell(column.breakdown));
    table.add(std::move(cells));
  };
  row("time", [](const Breakdown& b) { return fmt::format("{:.1f} us", b.makespan.value * 1e-3); });
  for (std::size_t kind = 0; kind < kNumSpanKinds; ++kind) {
    std::string name(kSpanKindNames[kind]);
    std::ranges::replace(name, '_', ' ');
    row(name, [&](const Breakdown& b) { return percent(b.share[kind]); });
  }
  row("tail", [&](const Breakdown& b) { return percent(b.tail); });
  // A run on CPU ranks has no link that anyone watched.
  row("(link busy)", [&](const Breakdown& b) { return b.link_busy > 0 ? percent(b.link_busy) : std::string("-"); });
  row("(overlap ratio)",
      [](const Breakdown& b) { return b.link_busy > 0 ? fmt::format("{:.2f}", b.overlap_ratio) : std::string("-"); });
  return table.text();
}

Json to_json(const Breakdown& breakdown) {
  Json json;
  json["makespan_us"] = breakdown.makespan.value * 1e-3;
  for (std::size_t kind = 0; kind < kNumSpanKinds; ++kind) {
    json[std::string(kSpanKindNames[kind])] = breakdown.share[kind];
  }
  json["tail"] = breakdown.tail;
  json["link_busy"] = breakdown.link_busy;
  json["overlap_ratio"] = breakdown.overlap_ratio;
  return json;
}

}  // namespace xs
