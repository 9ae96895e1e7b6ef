#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "xstage/core/json.hpp"
#include "xstage/core/test_support.hpp"

// For the tests of the command line: the program from outside, as a person would use it.

namespace xs::cli {

struct Outcome {
  int code;  // -1: ended by a signal
  std::string out;
  std::string err;
};

using Arguments = std::vector<std::string>;

inline Arguments operator+(Arguments first, const Arguments& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

class Program : public testing::Test {
 protected:
  // In a folder of its own, where relative names lie.
  Outcome run(const Arguments& arguments) const {
    std::string line = fmt::format("cd '{}' && '{}'", folder_.path().string(), XSTAGE_PROGRAM);
    for (const auto& argument : arguments) line += " '" + argument + "'";
    const TempFolder caught;
    line += fmt::format(" >'{}' 2>'{}'", (caught / "out").string(), (caught / "err").string());
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, caught.read("out"), caught.read("err")};
  }

  std::string expect_done(const Arguments& arguments) const {
    const auto outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    // Progress, on a slow machine, and nothing else.
    std::istringstream lines(outcome.err);
    for (std::string line; std::getline(lines, line);) EXPECT_NE(line.find(" % after "), std::string::npos) << line;
    return outcome.out;
  }

  // One object and nothing else on stdout.
  Json expect_json(const Arguments& arguments) const {
    const auto out = expect_done(arguments + Arguments{"--json"});
    const auto json = Json::parse(out, nullptr, false);
    EXPECT_TRUE(json.is_object()) << out;
    EXPECT_EQ(json.value("schema_version", 0), kSchemaVersion);
    EXPECT_NE(json.value("kind", ""), "");
    return json;
  }

  // Fails with this code, says all of `words`, prints no result and leaves no file behind.
  void expect_refused(const Arguments& arguments, const std::vector<std::string>& words, int code = 2) const {
    SCOPED_TRACE(fmt::format("{}", fmt::join(arguments, " ")));
    const auto before = folder_.names();
    const auto outcome = run(arguments);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_TRUE(outcome.err.starts_with("xstage")) << outcome.err;
    for (const auto& word : words) {
      EXPECT_NE(outcome.err.find(word), std::string::npos) << outcome.err << "lacks " << word;
    }
    EXPECT_EQ(folder_.names(), before);
  }

  TempFolder folder_;
};

inline bool has_gpu() { return std::filesystem::exists("/proc/driver/nvidia/gpus"); }

// A layer so small that it runs in a moment.
inline const Arguments kSmall{"--model", "deepseek-v2-lite", "--shrink", "64"};
inline const Arguments kRun = Arguments{"run", "moe"} + kSmall;
inline const Arguments kSimulate = Arguments{"simulate", "moe"} + kSmall;
inline const Arguments kTwoRanks{"--ranks", "2", "--tokens-per-rank", "8"};
// What must not appear when a command fails.
inline const Arguments kOutputs{"--trace", "trace.json", "--schedule-out", "schedule.json", "--output", "out.npy"};

}  // namespace xs::cli
