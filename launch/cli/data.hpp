#pragma once

#include "cli/commands.hpp"

namespace lockstep::launch {

/// Runs a program once, as a single process, to prepare its data.
int prepare_command(const Words& words, std::ostream& out, std::ostream& err);

/// Copies a data set to this node's local disk.
int stage_command(const Words& words, std::ostream& out, std::ostream& err);

}  // namespace lockstep::launch
