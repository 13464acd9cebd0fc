#pragma once

#include "cli/commands.hpp"

namespace lockstep::launch {

/// Lists, verifies, compares and merges checkpoints.
int checkpoint_command(const Words& words, std::ostream& out, std::ostream& err);

}  // namespace lockstep::launch
