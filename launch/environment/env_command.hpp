#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// `lockstep env [--json]`: prints what a report of a problem needs: versions, the host, its devices, and the
/// variables that matter, without secrets. Returns the exit status. Throws UsageError.
int env_command(const std::vector<std::string>& words, const Environment& environment, std::ostream& out);

}  // namespace lockstep::launch
