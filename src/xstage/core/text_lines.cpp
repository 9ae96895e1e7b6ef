#include "xstage/core/text_lines.hpp"

#include <algorithm>

namespace xs {
namespace {

std::string next_line(std::string_view& text) {
  const auto line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return std::string(line.empty() ? "nothing" : line);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> differing_lines(std::string_view a, std::string_view b) {
  std::vector<std::pair<std::string, std::string>> differing;
  while (!a.empty() || !b.empty()) {
    std::pair lines{next_line(a), next_line(b)};
    if (lines.first != lines.second) differing.push_back(std::move(lines));
  }
  return differing;
}

}  // namespace xs
