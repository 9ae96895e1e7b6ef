#pragma once

#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <string>

#include "xstage/core/json.hpp"

// Faces only: a command parses, calls, prints. Option names are the same in every command.

namespace xs::cli {

// Each adds one command with its options; the command runs as CLI11's callback and throws xs::Error.
void add_fit(CLI::App& app);
void add_predict(CLI::App& app);
void add_simulate(CLI::App& app);
void add_run(CLI::App& app);
void add_check(CLI::App& app);
void add_list(CLI::App& app);

// --json: one JSON object on stdout instead of text.
CLI::Option* add_json(CLI::App& command, bool& json);
void print(const Json& document);

// Lines on stderr for work that takes more than two seconds; silent before and when it is not a terminal's business.
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
