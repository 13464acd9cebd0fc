#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/environment.hpp"

namespace lockstep {

/// What a scheduler or an MPI launcher provides for this process, as torchrun's variables.
struct SchedulerInfo {
  /// The source, for messages: "Slurm step 12.0", "Open MPI".
  std::string source;
  /// RANK, WORLD_SIZE and so on, those that the source provides.
  Environment contract;
  /// The ranks of this node in the order of their local ranks, if the source provides them and they are not
  /// contiguous.
  std::vector<int> local_ranks;
  /// The source has given this rank GPUs that the others on the node do not see.
  bool own_devices = false;
};

/// Whether this process was started from the shell of an interactive step (`srun --pty bash`): all its
/// variables are of a task, but of the tasks of such a step only that shell does anything. *Local*.
bool in_interactive_shell(const Environment& environment);

/// Nothing if this process was started alone. If there are several sources, the innermost launcher is used:
/// mpirun runs inside a step of Slurm, not the other way round. Throws UsageError if a source contradicts
/// itself, or does not provide what cannot be derived; the text names the variable to set.
std::optional<SchedulerInfo> scheduler_info(const Environment& environment);

/// A warning if this process was started alone in a job that requested more: several tasks of a Slurm job
/// whose script does not use srun, several hosts of LSF or PBS. Otherwise nothing. A program prints it once,
/// on standard error. *Local*; reads the file PBS_NODEFILE.
std::optional<std::string> lonely_process_warning(const Environment& environment);

}  // namespace lockstep
