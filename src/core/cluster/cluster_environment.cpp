#include "lockstep/core/cluster/cluster_environment.hpp"

#include "core/cluster/scheduler_info.hpp"
#include "core/variables.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using namespace variables;

std::string first_node(const SlurmStep& step) {
  const bool elsewhere = step.node_id == 0 && !step.ranks_here.empty() && step.ranks_here.front() != 0;
  if (!step.arbitrary && !elsewhere) return step.nodes.front();
  throw UsageError(
      "Slurm step " + step.job_id + "." + step.step_id +
      " has an arbitrary distribution of tasks, so rank 0 may be on any of its nodes. Set MASTER_ADDR to the "
      "name of rank 0's node, the first in SLURM_HOSTFILE, before srun.");
}

bool is_block(const std::vector<int>& ranks) {
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    if (ranks[i] != ranks[i - 1] + 1) return false;
  }
  return true;
}

/// srun too sets PMI_RANK and PMI_SIZE for its tasks (--mpi=pmi2), and they say the same as its own
/// variables. mpiexec within a step sets them anew, and its local ones beside them.
bool pmi_of_slurm(const Environment& environment, const std::optional<SlurmStep>& step) {
  return step && find_variable(environment, "PMI_RANK") == std::to_string(step->rank) &&
         find_variable(environment, "PMI_SIZE") == std::to_string(step->tasks) &&
         !has(environment, "MPI_LOCALRANKID");
}

std::string at_slurm(const Environment& environment) {
  return "Slurm job " + find_variable(environment, "SLURM_JOB_ID").value_or("?") + " has " +
         find_variable(environment, "SLURM_NTASKS").value_or("?") +
         " tasks, but this program was not started by srun, so it runs as one process alone. Start it with "
         "'srun PROGRAM', one task for each rank, or with 'srun --ntasks-per-node=1 lockstep run ... "
         "PROGRAM', "
         "one launcher for each node.";
}

}  // namespace

SchedulerInfo slurm_info(const Environment& environment, const SlurmStep& step) {
  SchedulerInfo facts{.source = "Slurm step " + step.job_id + "." + step.step_id,
                      .contract = {{"RANK", std::to_string(step.rank)},
                                   {"WORLD_SIZE", std::to_string(step.tasks)},
                                   {"LOCAL_RANK", std::to_string(step.local_rank)},
                                   {"LOCAL_WORLD_SIZE", std::to_string(step.tasks_here)},
                                   {"GROUP_RANK", std::to_string(step.node_id)},
                                   {"GROUP_WORLD_SIZE", std::to_string(step.nodes.size())},
                                   {"TORCHELASTIC_RESTART_COUNT", std::to_string(step.restart_count)},
                                   {"TORCHELASTIC_RUN_ID", step.job_id + "." + step.step_id}},
                      .local_ranks = {}};
  if (!is_block(step.ranks_here)) facts.local_ranks = step.ranks_here;
  facts.own_devices = listed_devices(environment).value_or(kLargest) < step.gpus_on_node;
  if (step.tasks == 1 && !has(environment, "MASTER_ADDR") && !has(environment, "MASTER_PORT")) return facts;
  if (!has(environment, "MASTER_ADDR")) facts.contract["MASTER_ADDR"] = first_node(step);
  if (!has(environment, "MASTER_PORT"))
    facts.contract["MASTER_PORT"] = std::to_string(slurm_port(step.job_id, step.step_id));
  return facts;
}

std::optional<SchedulerInfo> scheduler_info(const Environment& environment) {
  const auto step = slurm_step(environment);
  if (pmi_of_slurm(environment, step)) return slurm_info(environment, *step);
  if (auto facts = mpi_info(environment)) return facts;
  if (step) return slurm_info(environment, *step);
  return std::nullopt;
}

std::optional<std::string> lonely_process_warning(const Environment& environment) {
  if (has(environment, "WORLD_SIZE") || scheduler_info(environment)) return std::nullopt;
  const auto tasks = whole_number(find_variable(environment, "SLURM_NTASKS").value_or(""));
  if (has(environment, "SLURM_JOB_ID"))
    return tasks.value_or(1) > 1 ? std::optional(at_slurm(environment)) : std::nullopt;
  const auto hosts = job_hosts(environment);
  if (hosts.size() < 2) return std::nullopt;
  return "this job has " + std::to_string(hosts.size()) + " hosts, " + hosts.front() +
         " the first, but this program was started without mpiexec or jsrun, so it runs as one process "
         "alone.";
}

}  // namespace lockstep
