#pragma once

#include <string>

namespace lockstep::launch {

/// What this host calls itself, without asking anybody: gethostname, no name server. *Local*.
std::string host_name();

}  // namespace lockstep::launch
