#include "xstage/report/trace.hpp"

#include <fmt/format.h>

#include <iterator>

#include "xstage/core/json.hpp"

namespace xs {
namespace {

constexpr double kMicro = 1e-3;  // the format counts in microseconds

}  // namespace

std::string to_trace(const std::vector<NamedTimeline>& timelines) {
  fmt::memory_buffer buffer;
  auto out = std::back_inserter(buffer);
  std::string_view comma = "";
  fmt::format_to(out, "{{\"displayTimeUnit\": \"ns\", \"traceEvents\": [");
  int first_process = 0;
  for (const auto& [name, timeline] : timelines) {
    for (int rank = 0; rank < timeline->num_ranks; ++rank) {
      const Json process_name = fmt::format("{} rank {}", name, rank);
      fmt::format_to(out, "{}\n{{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": {}, \"args\": {{\"name\": {}}}}}",
                     comma, first_process + rank, process_name.dump());
      comma = ",";
    }
    for (const Span& span : timeline->spans) {
      const auto kind = kSpanKindNames[static_cast<std::size_t>(span.kind)];
      const auto task = kTaskKindNames[static_cast<std::size_t>(span.task.kind)];
      fmt::format_to(
          out,
          "{}\n{{\"ph\": \"X\", \"name\": \"{}\", \"cat\": \"{}\", \"pid\": {}, \"tid\": {}, \"ts\": {:.3f}, "
          "\"dur\": {:.3f}, \"args\": {{\"claim\": {}, \"block\": {}, \"tile\": {}}}}}",
          comma, span.kind == SpanKind::compute ? task : kind, kind, first_process + span.rank, span.worker,
          span.begin.value * kMicro, (span.end - span.begin).value * kMicro, span.claim, span.task.block,
          span.task.tile);
    }
    for (const PortLevel& level : timeline->levels) {
      fmt::format_to(out,
                     "{}\n{{\"ph\": \"C\", \"name\": \"outstanding bytes\", \"pid\": {}, \"ts\": {:.3f}, "
                     "\"args\": {{\"bytes\": {:.0f}}}}}",
                     comma, first_process + level.rank, level.at.value * kMicro, level.outstanding.value);
    }
    first_process += timeline->num_ranks;
  }
  fmt::format_to(out, "\n]}}\n");
  return fmt::to_string(buffer);
}

}  // namespace xs
