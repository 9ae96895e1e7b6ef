#include <exception>

#include "xstage/cli/command.hpp"
#include "xstage/core/version.hpp"

namespace xs::cli {

CLI::Option* add_json(CLI::App& command, bool& json) {
  return command.add_flag("--json", json, "Print one JSON object instead of text");
}

void print(const Json& document) { fmt::print("{}\n", document.dump(2)); }

void Progress::update(double done) {
  const auto now = Clock::now();
  if (now - last_ < std::chrono::seconds(2)) return;
  last_ = now;
  fmt::print(stderr, "{}: {:.0f} % after {:.0f} s\n", what_, 100 * done,
             std::chrono::duration<double>(now - begin_).count());
}

namespace {

int run(int argc, char** argv) {
  CLI::App app("Measures, models and plans the post-issue stage of GPU stores, and runs what the plan says.", "xstage");
  app.set_version_flag("--version", fmt::format("xstage {} {}\nbuilt in: {}", version(), commit(), built_in()));
  app.require_subcommand(1);
  app.failure_message([](const CLI::App* failed, const CLI::Error& error) {
    return fmt::format("xstage: {}\nTry: xstage {} --help\n", error.what(),
                       failed->get_subcommands().empty() ? "" : failed->get_subcommands().front()->get_name());
  });
  for (const auto add : {add_fit, add_predict, add_simulate, add_run, add_check, add_list}) add(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ErrorKind::usage);
  }
  return 0;
}

}  // namespace
}  // namespace xs::cli

int main(int argc, char** argv) {
  try {
    return xs::cli::run(argc, argv);
  } catch (const xs::Error& error) {
    fmt::print(stderr, "xstage: {}\n", error.what());
    return static_cast<int>(error.kind());
  } catch (const std::exception& error) {
    fmt::print(stderr, "xstage: a fault of ours: {}\n", error.what());
    return static_cast<int>(xs::ErrorKind::internal);
  }
}
