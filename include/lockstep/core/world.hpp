#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/core/environment.hpp"

namespace lockstep {

/// Who this process is in its job: the environment contract of torchrun, read once and checked.
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
/// A "group" is one node's agent, as in torchrun: `group_rank` numbers the nodes.
/// The source of the contract: docs.pytorch.org/docs/stable/elastic/run.html, "Environment Variables".
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
  /// The ranks of this node in the order of their local ranks, where they are not the block that begins at
  /// `rank - local_rank`: Slurm deals tasks out in turn with --distribution=cyclic. Empty: they are the
  /// block.
  std::vector<int> local_ranks;
  /// A scheduler gave this rank GPUs that other ranks of the node do not see (as `srun --gpus-per-task=1`
  /// does), so the number of its device is local_rank modulo the devices that it sees.
  bool own_devices = false;
  /// The job's secret, which its processes prove to each other: not to be printed, logged, or put on a
  /// command line.
  std::string job_token;

  /// Reads the contract from `environment` (this process's own by default). *Local*.
  /// A process started alone (none of RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE set) is a world of
  /// one. Throws UsageError, naming the variable, its value and what was expected, when a variable is
  /// missing, malformed or contradicts another one. A world larger than one never shrinks to worlds of one.
  ///
  /// Where those four are not set, a scheduler's or an MPI launcher's variables give them: the program can be
  /// started by srun, mpiexec or jsrun, with one task for each rank. MASTER_ADDR and MASTER_PORT are then
  /// derived from the job's hosts and its id, unless they are set. docs/slurm.md lists what is read. A part
  /// of the four that was set by hand must agree with the scheduler; all four together replace what it says.
  static World from_environment();
  static World from_environment(const Environment& environment);

  /// A single process that talks to nobody.
  static World single() { return {}; }

  /// The rank of this node's local rank 0.
  int local_main_rank() const noexcept { return local_ranks.empty() ? rank - local_rank : local_ranks[0]; }

  bool is_main_process() const noexcept { return rank == 0; }
  bool is_local_main_process() const noexcept { return local_rank == 0; }
  bool is_last_process() const noexcept { return rank == world_size - 1; }
};

}  // namespace lockstep
