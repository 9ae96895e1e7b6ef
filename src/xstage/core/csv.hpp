#pragma once

#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

// Comma-separated tables without quoting, as the probes write them: `# ` comments first, then one header line that
// names every column once, then rows of equally many cells. A UTF-8 byte order mark and CRLF are taken as they come;
// quotes and NUL bytes are refused. Every error names file, line and column.

namespace xs {

class Csv {
 public:
  static Csv read(const std::filesystem::path& file);
  static Csv parse(std::string text, std::string name);

  std::size_t num_rows() const { return lines_.size(); }
  const std::vector<std::string>& comments() const { return comments_; }
  std::size_t num_columns() const { return header_.size(); }
  std::string_view name_of(std::size_t column) const { return header_[column]; }
  bool has(std::string_view column) const;
  // Position of a column that must exist.
  std::size_t column(std::string_view name) const;
  std::string_view text(std::size_t row, std::size_t column) const;
  // A finite number from `least` to `most`.
  double number(std::size_t row, std::size_t column, double least,
                double most = std::numeric_limits<double>::max()) const;
  std::int64_t integer(std::size_t row, std::size_t column, std::int64_t least,
                       std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;
  // "file:line"
  std::string where(std::size_t row) const;

 private:
  std::string name_;
  std::unique_ptr<const std::string> text_;  // on the heap, so that cells_ survive a move
  std::vector<std::string> comments_;
  std::vector<std::string> header_;
  std::vector<std::string_view> cells_;  // row-major, into *text_
  std::vector<std::size_t> lines_;       // line number of each row
};

}  // namespace xs
