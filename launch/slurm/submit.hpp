#pragma once

#include <string>

#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// Gives the script to `sbatch --parsable`, which prints the number of the job (and, where there are several,
/// the cluster) on standard output. Returns the exit status of sbatch. Throws SpawnError when there is none.
/// *Local*; waits for sbatch, which waits for Slurm's controller.
int submit_script(const std::string& script, const Environment& environment);

}  // namespace lockstep::launch
