#pragma once

#include <string>
#include <vector>

#include "xstage/core/json_fwd.hpp"
#include "xstage/model/machine.hpp"
#include "xstage/probe/neighbours.hpp"
#include "xstage/probe/probe.hpp"

// How what was measured and fitted looks on paper and as JSON.

namespace xs::cli {

std::string port_name(const PortParams& port);  // "st16 to host"

std::string errors_of(const FittedPort& port);  // "167 patterns, mean error 4.1 %, 5.2 % on patterns held out"

// The machine's ports with their intervals, from `samples` ("32512 rows of a.csv"), and a closing line about the surest
// one. `written_to`: the file that has them all; empty if none.
void print_ports(const Machine& machine, const std::string& samples, const std::string& written_to);

void print_patterns(const ProbeTarget& target, const std::vector<ProbedPattern>& patterns);
Json to_json(const std::vector<ProbedPattern>& patterns);

void print_neighbours(const NeighbourTarget& target, const NeighbourTable& table);
Json to_json(const NeighbourTable& table);

}  // namespace xs::cli
