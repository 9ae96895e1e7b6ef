#pragma once

#include <string>
#include <vector>

#include "xstage/core/json.hpp"
#include "xstage/plan/timeline.hpp"

// What people read on a terminal, and the same for programs.

namespace xs {

// Columns as wide as their widest cell; the first is left-aligned, the others right-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// One column per breakdown.
struct NamedBreakdown {
  std::string name;
  Breakdown breakdown;
};
std::string breakdown_table(const std::vector<NamedBreakdown>& columns);
Json to_json(const Breakdown& breakdown);

}  // namespace xs
