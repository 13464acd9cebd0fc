#pragma once

#include <cstdint>
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

/// The two sources. Neither fills MASTER_ADDR and MASTER_PORT when they are set or the world has one process.
SchedulerInfo slurm_info(const Environment& environment, const struct SlurmStep& step);
std::optional<SchedulerInfo> mpi_info(const Environment& environment);

/// The hosts of the job as LSF, PBS or Slurm list them, in the order in which MPI launchers fill them, each
/// once. Empty: no scheduler, or a file that is not on this host.
std::vector<std::string> job_hosts(const Environment& environment);

/// The id of the job of LSF, PBS or Slurm with that of its array task, else MPI's name of this start; empty:
/// there is none.
std::string job_name(const Environment& environment);

/// A port from 15000 to 31383 that depends on the text alone.
std::uint16_t port_of_name(const std::string& name);

/// How many devices CUDA_VISIBLE_DEVICES lists; nothing when it is not set.
std::optional<int> listed_devices(const Environment& environment);

}  // namespace lockstep
