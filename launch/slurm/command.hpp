#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace lockstep::launch {

/// `lockstep slurm ...`: the words after "slurm". Returns the exit status: 2 for a wrong command line, which
/// is explained on `err`; for submit, that of sbatch. *Local*.
int slurm_command(const std::vector<std::string>& words, std::ostream& out, std::ostream& err);

}  // namespace lockstep::launch
