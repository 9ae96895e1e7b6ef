#include "xstage/mem/run_ranks.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "xstage/core/error.hpp"

namespace xs {
namespace {

// The error that explains the others. A rank that gave up waiting only echoes what another one met.
class Cause {
 public:
  void add(const Error& error) {
    const bool echo = error.kind() == ErrorKind::timeout;
    if (!first_ || (echo_ && !echo)) first_ = error, echo_ = echo;
  }
  const std::optional<Error>& get() const { return first_; }

 private:
  std::optional<Error> first_;
  bool echo_ = false;
};

// Runs a rank. What it throws, as an Error.
std::optional<Error> run_rank(const World& world, int rank, const std::function<void(Rank)>& body) {
  try {
    if (world.port()) {
      HostPort port(*world.port());
      body(world.rank(rank, &port));
      port.settle();
    } else {
      body(world.rank(rank));
    }
    return {};
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(ErrorKind::internal, fmt::format("rank {}: {}", rank, error.what()));
  } catch (...) {
    return Error(ErrorKind::internal, fmt::format("rank {} threw what is no exception", rank));
  }
}

void run_threads(const World& world, const std::function<void(Rank)>& body) {
  std::mutex mutex;
  Cause cause;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < world.num_ranks(); ++rank) {
      threads.emplace_back([&, rank] {
        const auto error = run_rank(world, rank, body);
        const std::lock_guard lock(mutex);
        if (error) cause.add(*error);
      });
    }
  }
  if (cause.get()) throw *cause.get();
}

class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) fail(ErrorKind::unavailable, "no pipe: {}", std::strerror(errno));
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() { close_reader(), close_writer(); }
  void close_reader() { close(ends_[0]); }
  void close_writer() { close(ends_[1]); }

  void write(std::string_view text) const {
    for (ssize_t done = 0; !text.empty() && done >= 0; text.remove_prefix(static_cast<std::size_t>(done))) {
      done = ::write(ends_[1], text.data(), text.size());
      if (done < 0 && errno != EINTR) return;
      done = std::max<ssize_t>(done, 0);
    }
  }
  // Until there are as many, or every writer has closed.
  std::string read(std::size_t most) const {
    std::string text;
    std::array<char, 4096> buffer;
    while (text.size() < most) {
      const ssize_t got = ::read(ends_[0], buffer.data(), std::min(buffer.size(), most - text.size()));
      if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
      if (got == 0 || (got < 0 && errno != EINTR)) break;
    }
    return text;
  }

 private:
  static void close(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
  std::array<int, 2> ends_{-1, -1};
};

// The processes of a run. What is still there when it goes is killed.
class Children {
 public:
  explicit Children(int num_ranks) : pids_(static_cast<std::size_t>(num_ranks), -1) {}
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children() {
    for (const pid_t pid : pids_) {
      if (pid > 0) ::kill(pid, SIGKILL);
    }
    for (std::size_t rank = 0; rank < pids_.size(); ++rank) wait_for(rank);
  }

  pid_t& operator[](std::size_t rank) { return pids_[rank]; }
  // Its wait status; 0 if it never was.
  int wait_for(std::size_t rank) {
    int status = 0;
    if (pids_[rank] <= 0) return status;
    while (::waitpid(pids_[rank], &status, 0) < 0 && errno == EINTR) {
    }
    pids_[rank] = -1;
    return status;
  }

 private:
  std::vector<pid_t> pids_;
};

// A rank's process tells three things, each through a pipe of its own that says "no more" by closing: that it is there,
// that it may begin, and which error ended it.
struct Line {
  Pipe present, begin, error;
};

constexpr std::size_t kMostErrorBytes = 4096;  // a pipe holds as many, so that nobody waits for the reader

[[noreturn]] void be_rank(const World& world, int rank, pid_t parent, Line& line,
                          const std::function<void(Rank)>& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it ended before the line above
  line.present.close_reader();
  line.begin.close_writer();
  if (world.become(rank)) line.present.write("x");
  line.present.close_writer();
  if (line.begin.read(1).size() == 1) {
    const auto error = run_rank(world, rank, body);
    if (!error) world.leave(rank);
    if (error) {
      line.error.write(std::string(1, static_cast<char>(error->kind())) +
                       std::string(error->what()).substr(0, kMostErrorBytes - 1));
    }
  }
  std::fflush(nullptr);
  ::_exit(0);  // no destructors and atexit handlers of the caller
}

std::optional<Error> lost(int rank, pid_t pid, int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  if (WIFEXITED(status)) {
    return Error(ErrorKind::internal,
                 fmt::format("rank {} (process {}) ended itself with exit code {}", rank, pid, WEXITSTATUS(status)));
  }
  const int signal = WTERMSIG(status);
  const bool from_outside = signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
  return Error(from_outside ? ErrorKind::timeout : ErrorKind::internal,
               fmt::format("rank {} (process {}) was ended by signal {} ({})", rank, pid, signal, ::strsignal(signal)));
}

void run_processes(const World& world, const std::function<void(Rank)>& body) {
  std::fflush(nullptr);  // or every process would print what is buffered
  const auto num_ranks = static_cast<std::size_t>(world.num_ranks());
  std::vector<Line> lines(num_ranks);
  Children children(world.num_ranks());
  const pid_t parent = ::getpid();
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      for (std::size_t other = 0; other < num_ranks; ++other) {
        if (other == rank) continue;
        for (Pipe* pipe : {&lines[other].present, &lines[other].begin, &lines[other].error}) {
          pipe->close_writer();  // or its reader would wait for this process, too
        }
      }
      be_rank(world, static_cast<int>(rank), parent, lines[rank], body);
    }
    if (pid < 0) {
      fail(ErrorKind::unavailable, "rank {} of {} could not be started: {}", rank, num_ranks, std::strerror(errno));
    }
    children[rank] = pid;
    lines[rank].present.close_writer();
    lines[rank].error.close_writer();
  }

  std::vector<pid_t> pids;
  bool all_there = true;
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    pids.push_back(children[rank]);
    all_there = all_there && lines[rank].present.read(1).size() == 1;
  }
  for (auto& line : lines) {
    if (all_there) line.begin.write("x");
    line.begin.close_writer();
  }

  Cause cause;
  std::optional<Error> lost_rank;
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    const auto text = lines[rank].error.read(kMostErrorBytes);
    if (!text.empty()) cause.add(Error(static_cast<ErrorKind>(text[0]), text.substr(1)));
    const auto end = lost(static_cast<int>(rank), pids[rank], children.wait_for(rank));
    if (end && !lost_rank) lost_rank = end;
  }
  if (lost_rank) {
    if (!cause.get()) throw *lost_rank;
    fail(lost_rank->kind(), "{}; {}", lost_rank->what(), cause.get()->what());
  }
  if (cause.get()) throw *cause.get();
  check(all_there, "a rank was there before its process");
}

}  // namespace

void run_ranks(const World& world, const std::function<void(Rank)>& body) {
  if (world.ranks_are() == RanksAre::threads) return run_threads(world, body);
  run_processes(world, body);
}

}  // namespace xs
