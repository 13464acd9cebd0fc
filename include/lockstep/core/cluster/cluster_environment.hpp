#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/environment.hpp"

namespace lockstep {

/// The most names that one list may stand for.
inline constexpr std::size_t kMostHosts = 262'144;

/// The host names that a Slurm host list stands for, as `scontrol show hostnames` prints them:
/// "n[08-10,12],login" is n08, n09, n10, n12 and login. *Local*.
///
/// Items are parted by commas or blanks. Each bracket holds numbers and ranges; a number has at least as many
/// digits as the low end of its range is written with. Order and duplicates are kept. Where an item has
/// several brackets, the last one runs fastest and then the others from the left, as in Slurm. Text behind
/// the last bracket is accepted ("m[1-2]-ib"), which Slurm does since 23.11. An empty list has no hosts.
///
/// Throws UsageError, with the list and the place, for a bracket that does not close, a range that is no
/// range or runs backwards, more than 65536 hosts in a range, or more than kMostHosts hosts in all. That is
/// stricter than scontrol, which makes a host "n]" of "n[1" and a host "n1" of "n[1-]".
std::vector<std::string> expand_hostlist(std::string_view list);

/// What Slurm tells a task of a step, that is, a process that srun started. Numbers are those of the step,
/// not of the job: `srun -N1` in a job of three nodes is a step of one node.
struct SlurmStep {
  /// SLURM_JOB_ID, which each task of a job array has of its own.
  std::string job_id;
  /// SLURM_STEP_ID.
  std::string step_id;
  /// SLURM_STEP_NODELIST, expanded. Slurm sorts it.
  std::vector<std::string> nodes;
  /// SLURM_NODEID: which of `nodes` this is.
  int node_id = 0;
  /// SLURM_STEP_NUM_TASKS: the tasks of the step.
  int tasks = 1;
  /// The entry of SLURM_STEP_TASKS_PER_NODE for this node.
  int tasks_here = 1;
  /// SLURM_PROCID and SLURM_LOCALID: the number of this task in the step and on this node.
  int rank = 0;
  int local_rank = 0;
  /// SLURM_GTIDS: the ranks on this node in ascending order. No block where tasks were dealt out in turn
  /// (`srun --distribution=cyclic`). Empty when the variable is not there.
  std::vector<int> ranks_here;
  /// SLURM_DISTRIBUTION is "arbitrary": rank 0 may be on any node.
  bool arbitrary = false;
  /// SLURM_RESTART_COUNT: how often the job was requeued.
  int restart_count = 0;
  /// SLURM_ARRAY_JOB_ID and SLURM_ARRAY_TASK_ID; nothing outside of arrays.
  std::optional<std::string> array_job_id;
  std::optional<std::string> array_task_id;
  /// SLURM_GPUS_ON_NODE: the job's GPUS on this node, whether or not this task sees them all; 0: none.
  int gpus_on_node = 0;
  /// SLURM_CPUS_PER_TASK.
  std::optional<int> cpus_per_task;
};

/// The step that this process is a task of, or nothing: no Slurm, a batch script or salloc's shell (which
/// have SLURM_PROCID too), or a batch script that was submitted from within a step and has inherited that
/// step's variables. Throws UsageError when the variables of a step contradict each other. *Local*.
std::optional<SlurmStep> slurm_step(const Environment& environment);

/// A port that all tasks of a step agree on without talking: 15000 + (101 * job + step) mod 16384, from 15000
/// to 31383, which is below the ports that Linux gives to clients. Steps of one job, and the next 16384 jobs,
/// have different ones. Throws UsageError when `job_id` is no number; a `step_id` that is none counts as 0.
std::uint16_t slurm_port(std::string_view job_id, std::string_view step_id);

/// Throws UsageError when the step has several tasks on this node: for programs of which one must run on each
/// node, as a launcher, which would otherwise start the ranks of the node once for each task. `program` is
/// how the program is called in the text.
void require_one_task_per_node(const SlurmStep& step, std::string_view program);

/// What a user should be told when this process was started alone in a job that asked for more: several tasks
/// of a Slurm job whose script forgot srun, several hosts of LSF or PBS. Nothing when all is well. A program
/// prints it once, on standard error. *Local*; reads the file PBS_NODEFILE.
std::optional<std::string> lonely_process_warning(const Environment& environment);

}  // namespace lockstep
