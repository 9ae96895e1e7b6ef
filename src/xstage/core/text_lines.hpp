#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace xs {

// The pairs of lines, first with first and so on, in which two texts differ; "nothing" where one has no more.
std::vector<std::pair<std::string, std::string>> differing_lines(std::string_view a, std::string_view b);

}  // namespace xs
