#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "core/commands.hpp"

namespace lockstep::launch {

/// The words of a command line. Each command is a function of its words, declared in the header of its
/// source: it prints results to `out` and messages to `err`, and returns the exit code. Throws UsageError for
/// a wrong command line. All are *Local*.
using Words = std::vector<std::string>;

}  // namespace lockstep::launch
