#pragma once

#include <string>
#include <vector>

#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// How much the launcher says: `info` also what it is going to do, `error` no notices. Failures are always
/// reported.
enum class LogLevel { info, warning, error };

/// The level of the variable LOGLEVEL, in Python's names or numbers, as for torchrun; warning when it is
/// unset. A value that is none of them is told in `notices`.
LogLevel log_level(const Environment& environment, std::vector<std::string>& notices);

}  // namespace lockstep::launch
