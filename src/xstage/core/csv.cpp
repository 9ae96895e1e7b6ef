#include "xstage/core/csv.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "xstage/core/error.hpp"
#include "xstage/core/json.hpp"

namespace xs {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::optional<std::string_view> first_repeated(std::vector<std::string_view> cells) {
  std::ranges::sort(cells);
  const auto found = std::ranges::adjacent_find(cells);
  return found == cells.end() ? std::nullopt : std::optional(*found);
}

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> cells;
  for (std::size_t begin = 0;;) {
    const auto comma = line.find(',', begin);
    cells.push_back(trim(line.substr(begin, comma - begin)));
    if (comma == std::string_view::npos) return cells;
    begin = comma + 1;
  }
}

}  // namespace

Csv Csv::read(const std::filesystem::path& file) { return parse(read_text(file), file.string()); }

Csv Csv::parse(std::string text, std::string name) {
  Csv csv;
  csv.name_ = std::move(name);
  csv.text_ = std::make_unique<const std::string>(std::move(text));
  std::string_view all = *csv.text_;
  if (all.starts_with(kByteOrderMark)) all.remove_prefix(kByteOrderMark.size());
  std::size_t line_number = 0;
  for (std::size_t begin = 0; begin < all.size();) {
    const auto end = std::min(all.find('\n', begin), all.size());
    const auto line = trim(all.substr(begin, end - begin));
    begin = end + 1;
    ++line_number;
    require(line.find('\0') == std::string_view::npos,
            "{}:{}: expected text, found a NUL byte; is the file UTF-16? Save it as UTF-8", csv.name_, line_number);
    if (line.empty()) continue;
    if (line.front() == '#') {
      csv.comments_.emplace_back(trim(line.substr(1)));
      continue;
    }
    require(line.find('"') == std::string_view::npos,
            "{}:{}: quoted cells are not read; write the cells without quotes", csv.name_, line_number);
    const auto cells = split(line);
    if (csv.header_.empty()) {
      csv.header_.assign(cells.begin(), cells.end());
      const auto twice = first_repeated(cells);
      require(!twice, "{}:{}: the column \"{}\" stands twice in the header; give each its own name", csv.name_,
              line_number, excerpt(twice.value_or("")));
      continue;
    }
    require(cells.size() == csv.header_.size(), "{}:{}: expected {} cells as in the header, found {}; is the file cut?",
            csv.name_, line_number, csv.header_.size(), cells.size());
    csv.cells_.insert(csv.cells_.end(), cells.begin(), cells.end());
    csv.lines_.push_back(line_number);
  }
  require(!csv.header_.empty(), "{}: expected a header line, found none; is the file empty?", csv.name_);
  require(!csv.lines_.empty(), "{}: expected rows below the header, found none", csv.name_);
  return csv;
}

bool Csv::has(std::string_view column) const { return std::ranges::find(header_, column) != header_.end(); }

std::size_t Csv::column(std::string_view name) const {
  const auto found = std::ranges::find(header_, name);
  if (found == header_.end()) {
    std::string columns;
    for (const auto& column : header_) columns += (columns.empty() ? "" : ", ") + column;
    fail(ErrorKind::usage, "{}: the column \"{}\" is missing; found {}", name_, name, excerpt(columns, 400));
  }
  return static_cast<std::size_t>(found - header_.begin());
}

std::string_view Csv::text(std::size_t row, std::size_t column) const { return cells_[row * header_.size() + column]; }

double Csv::number(std::size_t row, std::size_t column, double least, double most) const {
  const auto cell = text(row, column);
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  const bool whole = error == std::errc() && end == cell.data() + cell.size();
  require(whole && std::isfinite(value) && value >= least,
          "{}: column \"{}\": expected a number of at least {}, found \"{}\"", where(row), excerpt(header_[column]),
          least, excerpt(cell));
  require(value <= most, "{}: column \"{}\": expected at most {}, found {}", where(row), excerpt(header_[column]), most,
          value);
  return value;
}

std::int64_t Csv::integer(std::size_t row, std::size_t column, std::int64_t least, std::int64_t most) const {
  const auto cell = text(row, column);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  const bool whole = error == std::errc() && end == cell.data() + cell.size();
  require(whole && value >= least, "{}: column \"{}\": expected a whole number of at least {}, found \"{}\"",
          where(row), excerpt(header_[column]), least, excerpt(cell));
  require(value <= most, "{}: column \"{}\": expected at most {}, found {}", where(row), excerpt(header_[column]), most,
          value);
  return value;
}

std::string Csv::where(std::size_t row) const { return fmt::format("{}:{}", name_, lines_[row]); }

}  // namespace xs
