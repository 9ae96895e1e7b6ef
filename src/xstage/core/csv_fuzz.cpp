#include "xstage/core/csv.hpp"
#include "xstage/core/fuzz_support.hpp"

namespace xs {
namespace {

using Rows = std::vector<std::vector<std::string>>;

Rows rows_of(const Csv& csv) {
  Rows rows(csv.num_rows());
  for (std::size_t row = 0; row < rows.size(); ++row) {
    for (std::size_t column = 0; column < csv.num_columns(); ++column) rows[row].emplace_back(csv.text(row, column));
  }
  return rows;
}

// The same cells without the blanks, comments and line ends that they came with.
std::string plain_text(const Csv& csv) {
  std::string text = "#\n";  // so that no cell comes first, where a byte order mark would be taken off it
  for (std::size_t column = 0; column < csv.num_columns(); ++column) {
    text += (column == 0 ? "" : ",") + std::string(csv.name_of(column));
  }
  for (const auto& row : rows_of(csv)) text += fmt::format("\n{}", fmt::join(row, ","));
  return text;
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  return {first_lines("data/moe_models.csv", 6), first_lines("data/h200_placement.csv", 5), "a,b\r\n1,-2.5e3\r\n",
          "\xef\xbb\xbf a , b \n\n# between\n1,\t2"};
}

void fuzz_one(std::string_view input) {
  const auto csv = if_accepted([&] { return Csv::parse(std::string(input), "fuzz.csv"); });
  if (!csv) return;
  check(rows_of(Csv::parse(plain_text(*csv), "again.csv")) == rows_of(*csv), "other cells when written and read again");
  for (std::size_t row = 0; row < csv->num_rows(); ++row) {
    for (std::size_t column = 0; column < csv->num_columns(); ++column) {
      check(csv->column(csv->name_of(column)) == column, "a column's name leads elsewhere");
      if_accepted([&] { return csv->number(row, column, -1e300); });
      const auto whole = if_accepted([&] { return csv->integer(row, column, -9, 1 << 20); });
      check(!whole || (*whole >= -9 && *whole <= 1 << 20), "a whole number out of its bounds");
    }
  }
}

}  // namespace xs
