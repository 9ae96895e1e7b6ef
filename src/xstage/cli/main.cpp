#include <cstdio>
#include <exception>
#include <new>

#include "xstage/cli/command.hpp"
#include "xstage/core/json.hpp"
#include "xstage/core/version.hpp"

namespace xs::cli {

CLI::Option* add_json(CLI::App& command, bool& json) {
  return command.add_flag("--json", json, "Print one JSON object instead of text");
}

CLI::Option* add_file(CLI::App& command, const std::string& name, std::string& file, const std::string& help) {
  return command.add_option(name, file, help)->type_name("FILE");
}

void require_writable(std::initializer_list<std::string> files) {
  for (const auto& file : files) {
    if (!file.empty()) xs::require_writable(file);
  }
}

void print(const Json& document) { fmt::print("{}", to_text(document)); }

void Progress::update(double done) {
  const auto now = Clock::now();
  if (now - last_ < std::chrono::seconds(2)) return;
  last_ = now;
  fmt::print(stderr, "{}: {:.0f} % after {:.0f} s\n", what_, 100 * done,
             std::chrono::duration<double>(now - begin_).count());
}

namespace {

// CLI11's text after the command as far as it was understood; where a command is missing, which ones there are.
std::string usage_error(const CLI::App* app, const CLI::Error& error) {
  const CLI::App* const root = app;
  std::string name = app->get_name();
  for (; !app->get_subcommands().empty(); name += " " + app->get_name()) app = app->get_subcommands().front();
  std::string text = error.what();
  std::vector<std::string> commands;
  for (const auto* command : app->get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back(command->get_name());
  }
  if (!commands.empty()) {
    const auto rest = root->remaining(true);  // what fell through
    text = fmt::format("expected one of {}; found {}", fmt::join(commands, ", "),
                       rest.empty() ? "nothing" : "\"" + rest.front() + "\"");
  }
  return fmt::format("{}: {}\nTry: {} --help\n", name, text, name);
}

int run(int argc, char** argv) {
  CLI::App app("Measures, models and plans the post-issue stage of GPU stores, and runs what the plan says.", "xstage");
  app.set_version_flag("--version", fmt::format("xstage {} {}\nbuilt in: {}", version(), commit(), built_in()));
  app.require_subcommand(1);
  app.fallthrough();  // --config may stand behind the command
  app.set_config("--config", "", "TOML file: [command] sections with options, which the command line overrides")
      ->type_name("FILE");
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.failure_message(usage_error);
  app.footer(
      "--config FILE, with any command: options from a TOML file, [command] sections; the command line overrides "
      "them.\n"
      "Exit codes: 0 done and verified, 1 verification failed, 2 usage, 3 not available on this machine, 4 timeout,\n"
      "5 a fault of ours.");
  for (const auto add :
       {add_probe, add_fit, add_predict, add_plan, add_simulate, add_run, add_check, add_bench, add_list, add_doctor})
    add(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ErrorKind::usage);
  }
  require(std::fflush(stdout) == 0, "stdout: cannot be written; is its disk full?");
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
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "xstage: this machine has not enough memory for that; use a smaller layer or fewer tokens\n");
    return static_cast<int>(xs::ErrorKind::unavailable);
  } catch (const std::exception& error) {
    fmt::print(stderr, "xstage: a fault of ours: {}\n", error.what());
    return static_cast<int>(xs::ErrorKind::internal);
  }
}
