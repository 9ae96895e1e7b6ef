#pragma once

#include "xstage/plan/check.hpp"

namespace xs {

// The checker's last part: whether all that touch a slot wait as they must. Needs a schedule that is in order
// otherwise: every wait is for the sum of all raises, no cycle, every slot exists. Reports the first `most` faults, one
// for all tasks that wait for the same.
std::vector<Fault> check_slots(const Schedule& schedule, std::size_t most);

}  // namespace xs
