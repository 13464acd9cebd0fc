#pragma once

#include <string>
#include <vector>

namespace lockstep::launch {

/// A batch script that runs as it is: launch/slurm/templates/<name>.sbatch.
///
/// What 'lockstep slurm' changes in it stands in lines of their own: the directives `#SBATCH --name=value`
/// and the settings `name=value`, of which `program=(...)` is one.
struct SlurmTemplate {
  std::string name;
  std::string text;
};

/// All of them. Written by slurm/templates.cmake.
const std::vector<SlurmTemplate>& slurm_templates();

}  // namespace lockstep::launch
