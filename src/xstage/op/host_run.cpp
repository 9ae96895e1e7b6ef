#include "xstage/op/host_run.hpp"

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include "xstage/core/error.hpp"

namespace xs {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kSpansOfTask = 2;  // it waits, it computes

class RankRun {
 public:
  RankRun(const RankSchedule& schedule, Rank rank, Signals& signals, const HostRunOptions& options,
          const TaskBody& body)
      : schedule_(schedule), rank_(rank), signals_(signals), options_(options), body_(body) {
    log_.executed.resize(schedule.tasks.size());
  }

  RankLog run() {
    {
      std::vector<std::jthread> others;
      for (int worker = 1; worker < options_.workers_per_rank; ++worker) {
        others.emplace_back([this, worker] { work_or_abort(worker); });
      }
      work_or_abort(0);
    }
    if (failure_) std::rethrow_exception(failure_);
    return std::move(log_);
  }

 private:
  Nanos now() const { return {static_cast<double>(std::chrono::nanoseconds(Clock::now() - start_).count())}; }

  void work_or_abort(int worker) {
    std::vector<Span> spans;
    try {
      work(worker, spans);
    } catch (const std::exception& error) {
      {
        const std::lock_guard lock(mutex_);
        if (!failure_) failure_ = std::current_exception();
      }
      signals_.abort(error.what());  // only now: the other workers' errors are echoes of this one
    }
    const std::lock_guard lock(mutex_);
    log_.spans.insert(log_.spans.end(), spans.begin(), spans.end());
  }

  void work(int worker, std::vector<Span>& spans) {
    const bool fixed = options_.claim == Claim::fixed;
    for (std::size_t taken = 0;; ++taken) {
      const std::size_t claim =
          fixed ? static_cast<std::size_t>(worker) + taken * static_cast<std::size_t>(options_.workers_per_rank)
                : next_claim_++;
      if (claim >= schedule_.tasks.size()) return;
      const Task& task = schedule_.tasks[claim];
      const Nanos begin = now();
      for (const auto& wait : schedule_.waits[claim]) signals_.wait(wait.flag, wait.count);
      const Nanos ready = now();
      signals_.step();
      body_(task, worker);
      for (const auto& raise : schedule_.raises[claim]) signals_.raise(raise.rank, raise.flag, raise.add);
      const Nanos end = now();
      log_.executed[claim] = task;
      const auto span = [&](SpanKind kind, Nanos from, Nanos to) {
        spans.push_back({rank_.rank(), worker, kind, task, static_cast<std::int64_t>(claim), from, to});
      };
      if (!schedule_.waits[claim].empty()) span(SpanKind::dependency, begin, ready);
      span(SpanKind::compute, ready, end);
    }
  }

  const RankSchedule& schedule_;
  Rank rank_;
  Signals& signals_;
  const HostRunOptions& options_;
  const TaskBody& body_;
  const Clock::time_point start_ = Clock::now();
  std::atomic<std::size_t> next_claim_{0};
  std::mutex mutex_;
  std::exception_ptr failure_;
  RankLog log_;
};

}  // namespace

RankLog run_schedule(const RankSchedule& schedule, Rank rank, Signals& signals, const HostRunOptions& options,
                     const TaskBody& body) {
  return RankRun(schedule, rank, signals, options, body).run();
}

namespace {

struct LogCounts {
  std::size_t tasks, spans;
};

template <class T>
void write_array(Rank rank, RegionId region, const std::vector<T>& values) {
  rank.put(rank.rank(), region, 0, std::as_bytes(std::span(values)));
}

template <class T>
std::vector<T> read_array(Rank rank, RegionId region, std::size_t count) {
  const auto values = rank.local_as<T>(region).first(count);
  return {values.begin(), values.end()};
}

}  // namespace

LogRegions::LogRegions(Layout& layout, std::size_t max_tasks)
    : counts_(layout.add("log counts", sizeof(LogCounts))),
      executed_(layout.add("log tasks", max_tasks * sizeof(Task))),
      spans_(layout.add("log spans", kSpansOfTask * max_tasks * sizeof(Span))) {}

void LogRegions::write(Rank rank, const RankLog& log) const {
  write_array(rank, executed_, log.executed);
  write_array(rank, spans_, log.spans);
  write_array(rank, counts_, std::vector{LogCounts{log.executed.size(), log.spans.size()}});
}

RankLog LogRegions::read(Rank rank) const {
  const auto counts = read_array<LogCounts>(rank, counts_, 1)[0];
  return {read_array<Task>(rank, executed_, counts.tasks), read_array<Span>(rank, spans_, counts.spans)};
}

}  // namespace xs
