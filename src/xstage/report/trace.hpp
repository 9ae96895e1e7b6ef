#pragma once

#include <string>
#include <vector>

#include "xstage/plan/timeline.hpp"

// Timelines as a trace in the JSON format that ui.perfetto.dev and chrome://tracing load. One process per rank, one
// track per worker, a counter for the port's outstanding bytes. The same timeline gives the same text byte for byte.

namespace xs {

struct NamedTimeline {
  std::string name;  // before "rank 0"
  const Timeline* timeline;
};

std::string to_trace(const std::vector<NamedTimeline>& timelines);

}  // namespace xs
