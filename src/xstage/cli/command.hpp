#pragma once

#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <chrono>
#include <concepts>
#include <initializer_list>
#include <string>

#include "xstage/core/json_fwd.hpp"

// Faces only: a command parses, calls, prints. Option names are the same in every command.

namespace xs::cli {

// Each adds one command with its options; the command runs as CLI11's callback and throws xs::Error.
void add_probe(CLI::App& app);
void add_fit(CLI::App& app);
void add_predict(CLI::App& app);
void add_plan(CLI::App& app);
void add_simulate(CLI::App& app);
void add_simulate_synthetic(CLI::App& simulate);  // below simulate
void add_run(CLI::App& app);
void add_check(CLI::App& app);
void add_bench(CLI::App& app);
void add_list(CLI::App& app);
void add_doctor(CLI::App& app);

// An option that holds a number in [least, most]; anything else is an error that says what was expected. (CLI11's own
// conversion takes "" for 0 and 010 for 8, and wraps or clamps what does not fit.)
template <class T>
CLI::Option* add_number(CLI::App& command, const std::string& name, T& value, T least, T most,
                        const std::string& help) {
  const auto parse = [=, &value](const std::string& text) {
    T number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || !(number >= least && number <= most)) {
      throw CLI::ValidationError(
          name, fmt::format("expected {} from {} to {}, found \"{}\"", std::integral<T> ? "a whole number" : "a number",
                            least, most, text));
    }
    value = number;
  };
  return command.add_option_function<std::string>(name, parse, help)
      ->type_name(std::integral<T> ? "INT" : "FLOAT")
      ->default_str(fmt::format("{}", value));
}

// An option that names a file.
CLI::Option* add_file(CLI::App& command, const std::string& name, std::string& file, const std::string& help);

// Before long work: throws where one of these files could not be written; empty names stand for no file.
void require_writable(std::initializer_list<std::string> files);

// --json: one JSON object on stdout instead of text.
CLI::Option* add_json(CLI::App& command, bool& json);
void print(const Json& document);

// A line on stderr every two seconds; silent for shorter work.
class Progress {
 public:
  explicit Progress(std::string what) : what_(std::move(what)) {}
  void update(double done);

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point last_ = begin_;
};

}  // namespace xs::cli
