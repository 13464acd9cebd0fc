#pragma once

#include <string>

#include "slurm/slurm_options.hpp"

namespace lockstep::launch {

/// The batch script for these options; `launcher` is the path of the launcher that it starts. Throws
/// UsageError when the options contradict each other or the template. *Local*.
std::string slurm_script(const OptionTable<SlurmOptions>::Parsed& parsed, const std::string& launcher);

}  // namespace lockstep::launch
