#pragma once

#include <string>
#include <vector>

#include "xstage/core/json_fwd.hpp"
#include "xstage/plan/timeline.hpp"

// What people read on a terminal, and the same for programs.

namespace xs {

// Columns as wide as their widest cell. `align` has one letter per column, l or r; without it the first column is
// left-aligned and the others, numbers mostly, are right-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> header, std::string align = "");
  void add(std::vector<std::string> row);
  std::string text() const;

 private:
  std::string align_;
  std::vector<std::vector<std::string>> rows_;
};

// 0.125: "12.5 %".
std::string percent(double share);

// One column per breakdown.
struct NamedBreakdown {
  std::string name;
  Breakdown breakdown;
};
std::string breakdown_table(const std::vector<NamedBreakdown>& columns);
Json to_json(const Breakdown& breakdown);

}  // namespace xs
