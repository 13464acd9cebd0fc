#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/core/environment.hpp"

namespace lockstep {

/// The rank of this process in its job: torchrun's environment variables, read once and checked.
///
/// | field               | variable                    | when absent                                        |
/// | ------------------- | --------------------------- | -------------------------------------------------- |
/// | rank                | RANK                        | a world of one, if no other variable is set either |
/// | world_size          | WORLD_SIZE                  | likewise                                           |
/// | local_rank          | LOCAL_RANK                  | an error when WORLD_SIZE > 1, else 0               |
/// | local_world_size    | LOCAL_WORLD_SIZE            | an error when WORLD_SIZE > 1, else 1               |
/// | master_addr         | MASTER_ADDR                 | an error when WORLD_SIZE > 1                       |
/// | master_port         | MASTER_PORT                 | an error when WORLD_SIZE > 1                       |
/// | group_rank          | GROUP_RANK                  | rank / local_world_size, if nodes are equal blocks |
/// | group_world_size    | GROUP_WORLD_SIZE            | nodes needed: ceil(world_size / local_world_size)  |
/// | role_name           | ROLE_NAME                   | "default"                                          |
/// | role_rank           | ROLE_RANK                   | rank                                               |
/// | role_world_size     | ROLE_WORLD_SIZE             | world_size                                         |
/// | restart_count       | TORCHELASTIC_RESTART_COUNT  | 0                                                  |
/// | max_restarts        | TORCHELASTIC_MAX_RESTARTS   | 0                                                  |
/// | run_id              | TORCHELASTIC_RUN_ID         | ""                                                 |
/// | use_agent_store     | TORCHELASTIC_USE_AGENT_STORE| false ("True" and "False" are its two values)      |
/// | error_file          | TORCHELASTIC_ERROR_FILE     | "" (none)                                          |
/// | job_token           | LOCKSTEP_JOB_TOKEN          | "" (none)                                          |
///
/// A "group" is the agent of one node, as in torchrun: `group_rank` is the number of the node. Source:
/// docs.pytorch.org/docs/stable/elastic/run.html, "Environment Variables".
struct World {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  int group_rank = 0;
  int group_world_size = 1;
  int role_rank = 0;
  int role_world_size = 1;
  std::string role_name = "default";
  std::string master_addr;
  std::uint16_t master_port = 0;
  int restart_count = 0;
  int max_restarts = 0;
  std::string run_id;
  bool use_agent_store = false;
  std::string error_file;
  /// The ranks of this node in the order of their local ranks, if they are not the contiguous block that
  /// begins at `rank - local_rank` (Slurm's --distribution=cyclic). Empty: they are that block.
  std::vector<int> local_ranks;
  /// A scheduler gave this rank GPUs that other ranks of the node do not see (`srun --gpus-per-task=1`). Its
  /// device number is then local_rank modulo the number of devices that it sees.
  bool own_devices = false;
  /// The job's secret, which its processes prove to each other. Do not print it, log it, or pass it on a
  /// command line.
  std::string job_token;

  /// Reads the variables from `environment` (default: that of this process). *Local*. A process started alone
  /// (none of RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE set) gets a world of one. Throws UsageError
  /// if a variable is missing, malformed or contradicts another one; the text names the variable, its value
  /// and what was expected. A job of several ranks never falls back to worlds of one.
  ///
  /// If those four are not set, they are derived from the variables of a scheduler or an MPI launcher: srun,
  /// mpiexec or jsrun can start the program, with one task per rank. MASTER_ADDR and MASTER_PORT are then
  /// derived from the job's hosts and its id, unless they are set. docs/slurm.md lists the variables. If some
  /// of the four were set by hand, they must agree with the scheduler; if all four are set, they override it.
  static World from_environment();
  static World from_environment(const Environment& environment);

  /// A single process that communicates with no other.
  static World single() { return {}; }

  /// The rank of this node's local rank 0.
  int local_main_rank() const noexcept { return local_ranks.empty() ? rank - local_rank : local_ranks[0]; }

  bool is_main_process() const noexcept { return rank == 0; }
  bool is_local_main_process() const noexcept { return local_rank == 0; }
  bool is_last_process() const noexcept { return rank == world_size - 1; }
};

}  // namespace lockstep
