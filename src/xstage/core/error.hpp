#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

// One exception type. Its kind decides the exit code of the program; its text says what was expected, what was
// found and what to try. Infeasible plans are results, not errors.

namespace xs {

enum class ErrorKind {
  verification = 1,  // a result differs from its reference, or a proof failed
  usage = 2,         // the caller's mistake: options, files, shapes
  unavailable = 3,   // this machine lacks what the call needs
  timeout = 4,       // a bounded wait expired
  internal = 5,      // ours
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& text) : std::runtime_error(text), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

// The caller's mistake.
template <class... Args>
void require(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) fail(ErrorKind::usage, format, std::forward<Args>(args)...);
}

// Ours.
template <class... Args>
void check(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) fail(ErrorKind::internal, format, std::forward<Args>(args)...);
}

// What was found, short enough to be read: an input may hold megabytes without a break.
inline std::string excerpt(std::string_view text, std::size_t most = 60) {
  return text.size() <= most ? std::string(text) : std::string(text.substr(0, most)) + "...";
}

}  // namespace xs
