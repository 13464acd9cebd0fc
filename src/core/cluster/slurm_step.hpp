#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/environment.hpp"

namespace lockstep {

/// What Slurm tells a task of a step, that is, a process started by srun. Numbers are those of the step, not
/// of the job: `srun -N1` in a job of three nodes is a step of one node.
struct SlurmStep {
  /// SLURM_JOB_ID; each task of a job array has its own.
  std::string job_id;
  /// SLURM_STEP_ID.
  std::string step_id;
  /// SLURM_STEP_NODELIST, expanded. Slurm sorts it.
  std::vector<std::string> nodes;
  /// SLURM_NODEID: index of this node in `nodes`.
  int node_id = 0;
  /// SLURM_STEP_NUM_TASKS: number of tasks of the step.
  int tasks = 1;
  /// The entry of SLURM_STEP_TASKS_PER_NODE for this node.
  int tasks_here = 1;
  /// SLURM_PROCID and SLURM_LOCALID: the number of this task in the step and on this node.
  int rank = 0;
  int local_rank = 0;
  /// SLURM_GTIDS: the ranks on this node in ascending order. Not contiguous if tasks were distributed
  /// cyclically (`srun --distribution=cyclic`). Empty if the variable is not set.
  std::vector<int> ranks_here;
  /// SLURM_DISTRIBUTION is "arbitrary": rank 0 may be on any node.
  bool arbitrary = false;
  /// SLURM_RESTART_COUNT: how often the job was requeued.
  int restart_count = 0;
  /// SLURM_ARRAY_JOB_ID and SLURM_ARRAY_TASK_ID; nothing outside arrays.
  std::optional<std::string> array_job_id;
  std::optional<std::string> array_task_id;
  /// SLURM_GPUS_ON_NODE: the job's GPUs on this node, whether or not this task sees all of them; 0: none.
  int gpus_on_node = 0;
  /// SLURM_CPUS_PER_TASK.
  std::optional<int> cpus_per_task;
};

/// The step that this process is a task of, or nothing: no Slurm, a batch script or salloc's shell (which
/// also have SLURM_PROCID), or a batch script that was submitted from within a step and inherited that step's
/// variables. Throws UsageError if the variables of a step contradict each other. *Local*.
std::optional<SlurmStep> slurm_step(const Environment& environment);

/// A port that all tasks of a step compute without communication: 15000 + (101 * job + step) mod 16384, from
/// 15000 to 31383, which is below Linux's ephemeral ports. Different steps of one job, and the same step of
/// 16384 consecutive jobs, have different ports. Throws UsageError if `job_id` is not a number; a `step_id`
/// that is not a number counts as 0.
std::uint16_t slurm_port(std::string_view job_id, std::string_view step_id);

/// Throws UsageError if the step has several tasks on this node: for programs that must run once per node,
/// such as a launcher, which would otherwise start the ranks of the node once per task. `program` is the
/// program's name in the text.
void require_one_task_per_node(const SlurmStep& step, std::string_view program);

}  // namespace lockstep
