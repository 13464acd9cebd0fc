#pragma once

#include "config/launch_config.hpp"
#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// Fills in what a Slurm step knows, for `--rdzv-backend slurm`: the nodes, the number of this one, and where
/// they meet (the first node of the step, at a port worked out from the job's number). A step of several
/// nodes is taken for that also where nothing is said of nodes and addresses; `--standalone` keeps each node
/// to itself.
///
/// Throws UsageError where the step contradicts the command line, or there is no step. Does nothing
/// elsewhere.
void complete_from_slurm(const OptionTable<RunOptions>::Parsed& parsed, const Environment& environment,
                         LaunchConfig& config);

}  // namespace lockstep::launch
