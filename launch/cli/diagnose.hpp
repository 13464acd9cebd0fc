#pragma once

#include "cli/commands.hpp"

namespace lockstep::launch {

/// Makes a running `lockstep run` print the stacks of its ranks.
int stacks_command(const Words& words, std::ostream& out, std::ostream& err);

/// Analyzes the ranks' traces: which rank waits for which.
int trace_command(const Words& words, std::ostream& out, std::ostream& err);

}  // namespace lockstep::launch
