#pragma once

#include <string>
#include <vector>

#include "xstage/model/machine.hpp"
#include "xstage/probe/neighbours.hpp"
#include "xstage/probe/probe.hpp"

// Ports of a GPU of this machine. Where there is none, what needs one throws Error(unavailable), one sentence.

namespace xs {

struct GpuPort {
  int device = 0;
  std::string to = "host";    // host: pinned, mapped; hbm: own memory; peer: the first GPU that is reached
  std::string path = "st16";  // a store path, or the copy engine: "ce" a copy per call, "ce_batch" many,
                              // "ce_wait" each behind a stream's wait for a flag
  int copy_bytes = 8192;      // of a bulk or tensor copy
};

// Throws Error(usage) that says what was expected. Needs no GPU.
void require_port(const GpuPort& port);

bool is_copy_engine(const GpuPort& port);

// Worker counts that show a port of so many SMs: from one to all of them.
std::vector<int> worker_counts(int num_sms);

// Stores: path "st16", "st4", "bulk8192", "tensor8192"; to "host", "hbm", "nvlink" or, where no NVLink leads there,
// "peer". Copies: patterns of its own, a copy's time as its issue. The SM's clock is measured, not read.
ProbeTarget gpu_target(const GpuPort& port);

// Throws Error(usage) for a copy engine.
NeighbourTarget neighbour_target(const GpuPort& port);

// Every path and destination that this GPU has.
std::vector<GpuPort> ports_on_offer(int device);

// What a profile says of this GPU without its ports: the known profile of its chip as far as there is one, with the
// clock and the memory's bandwidth as measured.
Machine gpu_machine(int device);

}  // namespace xs
