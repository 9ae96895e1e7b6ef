#pragma once

#include "xstage/mem/host_port.hpp"
#include "xstage/probe/probe.hpp"

namespace xs {

// A software port of this host: path "put" to "memory", one thread per worker. A cycle is a nanosecond.
ProbeTarget host_target(const HostPortOptions& options);

}  // namespace xs
