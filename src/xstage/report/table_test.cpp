#include "xstage/report/table.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <sstream>

#include "xstage/core/json.hpp"
#include "xstage/core/test_support.hpp"

namespace xs {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Table, FirstColumnIsLeftAlignedOthersRight) {
  Table table({"port", "SMs", "drain"});
  table.add({"st16 to nvlink", "132", "386"});
  table.add({"st4", "8", ">= 1234"});
  EXPECT_EQ(table.text(),
            "  port            SMs    drain\n"
            "  st16 to nvlink  132      386\n"
            "  st4               8  >= 1234\n");
}

TEST(Table, AlignmentCanBeChosen) {
  Table table({"name", "what"}, "rl");
  table.add({"a", "short"});
  table.add({"longer", "text that ends the line"});
  EXPECT_EQ(table.text(),
            "    name  what\n"
            "       a  short\n"
            "  longer  text that ends the line\n");
}

TEST(Table, LinesEndWithoutBlanksAndColumnsLineUp) {
  Dice dice(1);
  Table table({"a", "b", "c", "d"}, "lrlr");
  for (int row = 0; row < 20; ++row) {
    std::vector<std::string> cells;
    for (int i = 0; i < 4; ++i) cells.emplace_back(static_cast<std::size_t>(dice.whole(i == 3 ? 1 : 0, 12)), 'x');
    table.add(cells);
  }
  const auto lines = lines_of(table.text());
  ASSERT_EQ(lines.size(), 21u);
  for (const auto& line : lines) {
    EXPECT_NE(line.back(), ' ');
    EXPECT_EQ(line.size(), lines.front().size());  // the last column is right-aligned and never empty
  }
}

TEST(Table, RowOfAnotherLengthIsOurFault) {
  Table table({"a", "b"});
  expect_error(ErrorKind::internal, [&] { table.add({"1"}); }, {"2 columns", "row of 1"});
  expect_error(ErrorKind::internal, [] { Table({"a", "b"}, "l"); }, {"2 columns", "1 alignments"});
}

Breakdown example_breakdown() {
  Breakdown breakdown;
  breakdown.makespan = {123456.7};
  breakdown.share = {0.5, 0.125, 0.0625, 0.25};
  breakdown.tail = 0.0625;
  breakdown.link_busy = 0.75;
  breakdown.overlap_ratio = 0.875;
  return breakdown;
}

TEST(BreakdownTable, NamesEveryShareOfEveryColumn) {
  auto other = example_breakdown();
  other.makespan = {2000};
  EXPECT_EQ(breakdown_table({{"serial", example_breakdown()}, {"wave:8", other}}),
            "                     serial  wave:8\n"
            "  time             123.5 us  2.0 us\n"
            "  compute            50.0 %  50.0 %\n"
            "  operand stall      12.5 %  12.5 %\n"
            "  sender stall        6.2 %   6.2 %\n"
            "  dependency wait    25.0 %  25.0 %\n"
            "  tail                6.2 %   6.2 %\n"
            "  (link busy)        75.0 %  75.0 %\n"
            "  (overlap ratio)      0.88    0.88\n");
}

TEST(BreakdownJson, HasEveryShareUnrounded) {
  const auto json = to_json(example_breakdown());
  EXPECT_DOUBLE_EQ(json.at("makespan_us").get<double>(), 123.4567);
  double sum = 0;
  for (const char* share : {"compute", "operand_stall", "sender_stall", "dependency_wait", "tail"}) {
    sum += json.at(share).get<double>();
  }
  EXPECT_EQ(sum, 1.0);
  EXPECT_EQ(json.at("link_busy"), 0.75);
  EXPECT_EQ(json.at("overlap_ratio"), 0.875);
}

}  // namespace
}  // namespace xs
