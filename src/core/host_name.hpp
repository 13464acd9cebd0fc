#pragma once

#include <string>

namespace lockstep {

/// What this host calls itself, without asking anybody: gethostname, no name server. "unknown" where the
/// system does not tell. *Local*.
std::string host_name();

}  // namespace lockstep
