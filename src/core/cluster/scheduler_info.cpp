#include "core/cluster/scheduler_info.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "core/variables.hpp"
#include "lockstep/core/cluster/cluster_environment.hpp"
#include "lockstep/core/cluster/hostlist.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using namespace variables;

void append_once(std::vector<std::string>& hosts, const std::string& host) {
  if (!host.empty() && std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
}

/// "launch 1 a 4 b 4": hosts and their slots. Where jsrun starts the ranks, a host with one slot in front is
/// the one on which the script runs, and gets no rank.
std::vector<std::string> lsf_hosts(const Environment& environment) {
  std::istringstream words(find_variable(environment, "LSB_MCPU_HOSTS").value_or(""));
  std::vector<std::string> hosts;
  std::string host;
  int first_slots = 0;
  for (int slots = 0; words >> host >> slots;) {
    if (hosts.empty()) first_slots = slots;
    append_once(hosts, host);
  }
  if (hosts.size() > 1 && first_slots == 1 && has(environment, "JSM_NAMESPACE_RANK"))
    hosts.erase(hosts.begin());
  return hosts;
}

/// One line for each slot. PBS writes the file on the job's first host only.
std::vector<std::string> pbs_hosts(const Environment& environment) {
  std::vector<std::string> hosts;
  std::ifstream file(find_variable(environment, "PBS_NODEFILE").value_or(""));
  for (std::string line; std::getline(file, line);) append_once(hosts, line);
  return hosts;
}

std::string value_or_empty(const Environment& environment, std::string_view name) {
  return find_variable(environment, name).value_or("");
}

std::string first_node(const SlurmStep& step) {
  const bool elsewhere = step.node_id == 0 && !step.ranks_here.empty() && step.ranks_here.front() != 0;
  if (!step.arbitrary && !elsewhere) return step.nodes.front();
  throw UsageError(fmt::format(
      "Slurm step {}.{} has an arbitrary distribution of tasks, so rank 0 may be on any of its nodes. Set "
      "MASTER_ADDR to the name of rank 0's node, the first in SLURM_HOSTFILE, before srun.",
      step.job_id, step.step_id));
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
  return step && find_variable(environment, "PMI_RANK") == fmt::to_string(step->rank) &&
         find_variable(environment, "PMI_SIZE") == fmt::to_string(step->tasks) &&
         !has(environment, "MPI_LOCALRANKID");
}

std::string at_slurm(const Environment& environment) {
  return fmt::format(
      "Slurm job {} has {} tasks, but this program was not started by srun, so it runs as one process alone. "
      "Start "
      "it with 'srun PROGRAM', one task for each rank, or with 'srun --ntasks-per-node=1 lockstep run ... "
      "PROGRAM', "
      "one launcher for each node.",
      find_variable(environment, "SLURM_JOB_ID").value_or("?"),
      find_variable(environment, "SLURM_NTASKS").value_or("?"));
}

}  // namespace

std::vector<std::string> job_hosts(const Environment& environment) {
  if (auto hosts = lsf_hosts(environment); !hosts.empty()) return hosts;
  if (auto hosts = pbs_hosts(environment); !hosts.empty()) return hosts;
  return expand_hostlist(value_or_empty(environment, "SLURM_JOB_NODELIST"));
}

std::string job_name(const Environment& environment) {
  std::string name;
  if (has(environment, "LSB_JOBID")) {
    name =
        "lsf " + value_or_empty(environment, "LSB_JOBID") + " " + value_or_empty(environment, "LSB_JOBINDEX");
  } else if (has(environment, "PBS_JOBID")) {
    name = "pbs " + value_or_empty(environment, "PBS_JOBID");
  } else if (has(environment, "SLURM_JOB_ID")) {
    name = "slurm " + value_or_empty(environment, "SLURM_JOB_ID");
  }
  // Two starts in one job at once have names of their own.
  return name + value_or_empty(environment, "PMIX_NAMESPACE");
}

std::uint16_t port_of_name(const std::string& name) {
  // FNV-1a: the same on every host, which std::hash need not be.
  std::uint64_t hash = 14'695'981'039'346'656'037ULL;
  for (const unsigned char letter : name) hash = (hash ^ letter) * 1'099'511'628'211ULL;
  return static_cast<std::uint16_t>(15'000 + hash % 16'384);
}

std::optional<int> listed_devices(const Environment& environment) {
  const auto list = find_variable(environment, "CUDA_VISIBLE_DEVICES");
  if (!list) return std::nullopt;
  return list->empty() ? 0 : 1 + static_cast<int>(std::count(list->begin(), list->end(), ','));
}

SchedulerInfo slurm_info(const Environment& environment, const SlurmStep& step) {
  SchedulerInfo info{.source = fmt::format("Slurm step {}.{}", step.job_id, step.step_id),
                     .contract = {{"RANK", fmt::to_string(step.rank)},
                                  {"WORLD_SIZE", fmt::to_string(step.tasks)},
                                  {"LOCAL_RANK", fmt::to_string(step.local_rank)},
                                  {"LOCAL_WORLD_SIZE", fmt::to_string(step.tasks_here)},
                                  {"GROUP_RANK", fmt::to_string(step.node_id)},
                                  {"GROUP_WORLD_SIZE", fmt::to_string(step.nodes.size())},
                                  {"TORCHELASTIC_RESTART_COUNT", fmt::to_string(step.restart_count)},
                                  {"TORCHELASTIC_RUN_ID", fmt::format("{}.{}", step.job_id, step.step_id)}},
                     .local_ranks = {}};
  if (!is_block(step.ranks_here)) info.local_ranks = step.ranks_here;
  info.own_devices = listed_devices(environment).value_or(kLargest) < step.gpus_on_node;
  if (step.tasks == 1 && !has(environment, "MASTER_ADDR") && !has(environment, "MASTER_PORT")) return info;
  if (!has(environment, "MASTER_ADDR")) info.contract["MASTER_ADDR"] = first_node(step);
  if (!has(environment, "MASTER_PORT"))
    info.contract["MASTER_PORT"] = fmt::to_string(slurm_port(step.job_id, step.step_id));
  return info;
}

std::optional<SchedulerInfo> scheduler_info(const Environment& environment) {
  const auto step = slurm_step(environment);
  if (pmi_of_slurm(environment, step)) return slurm_info(environment, *step);
  if (auto info = mpi_info(environment)) return info;
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
  return fmt::format(
      "this job has {} hosts, {} the first, but this program was started without mpiexec or jsrun, so it "
      "runs as "
      "one process alone.",
      hosts.size(), hosts.front());
}

}  // namespace lockstep
