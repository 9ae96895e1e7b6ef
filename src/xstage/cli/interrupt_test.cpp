#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "xstage/cli/program.hpp"

// Ctrl-C while ranks run as processes.

namespace xs::cli {
namespace {

// Of a process that may have threads, by the kernel's own list.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  const auto tasks = fmt::format("/proc/{}/task", parent);
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator(tasks, gone)) {
    std::ifstream list(task.path() / "children");
    for (pid_t child; list >> child;) children.push_back(child);
  }
  return children;
}

// A process that has ended but that nobody has waited for yet counts as ended.
bool is_there(pid_t process) {
  std::ifstream stat(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(stat, text);
  const auto name_end = text.rfind(')');
  return name_end != std::string::npos && text.substr(name_end + 2, 1) != "Z";
}

// Whether it held within 30 s: the machine may be busy.
bool soon(const std::function<bool()>& holds) {
  for (int i = 0; i < 3000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// A terminal sends the signal to all of them; `kill -INT` to the program alone.
class Interrupt : public Program, public testing::WithParamInterface<bool> {};

INSTANTIATE_TEST_SUITE_P(, Interrupt, testing::Bool(),
                         [](const auto& one) { return one.param ? "OfAllProcesses" : "OfTheProgramAlone"; });

TEST_P(Interrupt, EndsEveryRankAndLeavesNothing) {
  constexpr int kRanks = 4;
  const auto output = folder_ / "out.npy";
  const pid_t program = ::fork();
  if (program == 0) {
    ::setpgid(0, 0);
    std::signal(SIGINT, SIG_DFL);  // a shell without job control starts its children deaf to it
    const int nowhere = ::open("/dev/null", O_RDWR);
    for (const int stream : {0, 1, 2}) ::dup2(nowhere, stream);
    ::execl(XSTAGE_PROGRAM, XSTAGE_PROGRAM, "run", "moe", "--model", "deepseek-v3", "--shrink", "16", "--ranks", "4",
            "--tokens-per-rank", "2048", "--ranks-as", "processes", "-o", output.c_str(), nullptr);
    ::_exit(127);
  }
  std::vector<pid_t> ranks;
  EXPECT_TRUE(soon([&] { return (ranks = children_of(program)).size() == kRanks; }));
  ::kill(GetParam() ? -program : program, SIGINT);
  int status = 0;
  ASSERT_EQ(::waitpid(program, &status, 0), program);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << "wait status " << status;
  for (const pid_t rank : ranks) EXPECT_TRUE(soon([&] { return !is_there(rank); })) << "process " << rank;
  EXPECT_EQ(folder_.names(), std::vector<std::string>{});
}

}  // namespace
}  // namespace xs::cli
