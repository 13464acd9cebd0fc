#pragma once

#include "cli/commands.hpp"

namespace lockstep::launch {

/// Prints or submits a batch script for Slurm.
int slurm_command(const Words& words, std::ostream& out, std::ostream& err);

}  // namespace lockstep::launch
