#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/environment.hpp"

namespace lockstep {

/// What a scheduler or an MPI launcher says about this process, in the words of torchrun's contract.
struct SchedulerInfo {
  /// Who says it, for messages: "Slurm step 12.0", "Open MPI".
  std::string source;
  /// RANK, WORLD_SIZE and so on, as far as the source gives them.
  Environment contract;
  /// The ranks of this node in the order of their local ranks, where the source gives them.
  std::vector<int> local_ranks;
  /// The source has given this rank GPUs that the others on the node do not see.
  bool own_devices = false;
};

/// Nothing when this process was started alone. Where several sources speak, the innermost launcher is
/// believed: mpirun runs inside a step of Slurm, not the other way round. Throws UsageError when a source
/// contradicts itself, or leaves out what cannot be derived; the text names the variable to set.
std::optional<SchedulerInfo> scheduler_info(const Environment& environment);

}  // namespace lockstep
