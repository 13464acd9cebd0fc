#pragma once

#include <string>

#include "lockstep/comm/process_group.hpp"

namespace check {

/// Runs a barrier, and all-reduces of several sizes whose results are compared with the numbers that they
/// must give. Returns a table of times and bandwidths. *Collective*. Throws Error that names the rank and the
/// size where a result is wrong.
std::string check_collectives(const lockstep::ProcessGroup& group);

/// The time on the slowest rank.
double slowest(const lockstep::ProcessGroup& group, double seconds);

}  // namespace check
