#include "core/cluster/scheduler_info.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <set>
#include <sstream>

#include "core/cluster/hostlist.hpp"
#include "core/cluster/scheduler_variables.hpp"
#include "core/cluster/slurm_step.hpp"
#include "core/host_name.hpp"
#include "core/text.hpp"
#include "core/visible_devices.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using namespace variables;

void append_once(std::vector<std::string>& hosts, const std::string& host) {
  if (!host.empty() && std::ranges::find(hosts, host) == hosts.end()) hosts.push_back(host);
}

/// "launch 1 a 4 b 4": hosts and their slots. If jsrun starts the ranks, a first host with one slot is the
/// launch node, which has no ranks.
std::vector<std::string> lsf_hosts(const Environment& environment) {
  std::istringstream words(find_variable(environment, "LSB_MCPU_HOSTS").value_or(""));
  std::vector<std::string> hosts;
  std::string host;
  int first_slots = 0;
  for (int slots = 0; words >> host >> slots;) {
    if (hosts.empty()) first_slots = slots;
    append_once(hosts, host);
  }
  if (hosts.size() > 1 && first_slots == 1 && environment.contains("JSM_NAMESPACE_RANK"))
    hosts.erase(hosts.begin());
  return hosts;
}

/// One line per slot. PBS writes the file on the job's first host only.
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
  return std::ranges::adjacent_find(ranks, [](int a, int b) { return b != a + 1; }) == ranks.end();
}

/// srun also sets PMI_RANK and PMI_SIZE for its tasks (--mpi=pmi2), with the same values as its own
/// variables. mpiexec within a step replaces them, and also sets its local ones.
bool pmi_of_slurm(const Environment& environment, const std::optional<SlurmStep>& step) {
  return step && find_variable(environment, "PMI_RANK") == fmt::to_string(step->rank) &&
         find_variable(environment, "PMI_SIZE") == fmt::to_string(step->tasks) &&
         !environment.contains("MPI_LOCALRANKID");
}

/// The distinct hosts of the job as LSF, PBS or Slurm list them, in the order in which MPI launchers fill
/// them. Empty: no scheduler, or a file that is not on this host.
std::vector<std::string> job_hosts(const Environment& environment) {
  if (auto hosts = lsf_hosts(environment); !hosts.empty()) return hosts;
  if (auto hosts = pbs_hosts(environment); !hosts.empty()) return hosts;
  return expand_hostlist(value_or_empty(environment, "SLURM_JOB_NODELIST"));
}

/// The id of the LSF, PBS or Slurm job, for LSF with that of its array task, followed by PMIx's namespace;
/// empty if there is none.
std::string job_name(const Environment& environment) {
  std::string name;
  if (environment.contains("LSB_JOBID")) {
    name =
        "lsf " + value_or_empty(environment, "LSB_JOBID") + " " + value_or_empty(environment, "LSB_JOBINDEX");
  } else if (environment.contains("PBS_JOBID")) {
    name = "pbs " + value_or_empty(environment, "PBS_JOBID");
  } else if (environment.contains("SLURM_JOB_ID")) {
    name = "slurm " + value_or_empty(environment, "SLURM_JOB_ID");
  }
  // Concurrent starts in one job have different namespaces.
  return name + value_or_empty(environment, "PMIX_NAMESPACE");
}

/// A port from 15000 to 31383 computed from the text alone.
std::uint16_t port_of_name(const std::string& name) {
  // FNV-1a: the same on every host, unlike std::hash.
  std::uint64_t hash = 14'695'981'039'346'656'037ULL;
  for (const unsigned char letter : name) hash = (hash ^ letter) * 1'099'511'628'211ULL;
  return static_cast<std::uint16_t>(15'000 + hash % 16'384);
}

/// The number of devices in CUDA_VISIBLE_DEVICES; the largest number if it is not set.
int listed_devices(const Environment& environment) {
  const auto devices = visible_devices(environment);
  return devices ? static_cast<int>(devices->size()) : kLargest;
}

// The two sources. Neither sets MASTER_ADDR and MASTER_PORT if they are set or the world has one process.

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
  info.own_devices = listed_devices(environment) < step.gpus_on_node;
  if (step.tasks == 1 && !environment.contains("MASTER_ADDR") && !environment.contains("MASTER_PORT"))
    return info;
  if (!environment.contains("MASTER_ADDR")) info.contract["MASTER_ADDR"] = first_node(step);
  if (!environment.contains("MASTER_PORT"))
    info.contract["MASTER_PORT"] = fmt::to_string(slurm_port(step.job_id, step.step_id));
  return info;
}

/// The variables of one kind of MPI launcher for torchrun's RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE
/// and GROUP_RANK; an empty name: not provided.
struct Family {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  const char* node;
};

/// Launchers that also set another's variables come first.
constexpr Family kFamilies[] = {
    {"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK",
     "JSM_NAMESPACE_LOCAL_SIZE", ""},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", ""},
    {"MVAPICH2", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE", ""},
    {"PALS", "PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID", "PMI_LOCAL_SIZE", "PALS_NODEID"},
    {"MPICH's or Intel's mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", ""},
};

const Family* family_of(const Environment& environment) {
  for (const auto& family : kFamilies) {
    if (environment.contains(family.rank)) return &family;
  }
  return nullptr;
}

void copy(const Environment& environment, const char* source, const char* target, Environment& contract) {
  if (*source != '\0' && environment.contains(source))
    contract.emplace(target, fmt::to_string(scheduler_integer(environment, source)));
}

[[noreturn]] void cannot_derive(const Family& family, const Environment& environment, const std::string& name,
                                const std::string& advice) {
  throw UsageError(
      fmt::format("this is rank {} of {} of {} ({}, {}), but {} is not set and cannot be derived. {}",
                  scheduler_text(environment, family.rank), scheduler_text(environment, family.size),
                  family.name, family.rank, family.size, name, advice));
}

void read_local(const Family& family, const Environment& environment, Environment& contract) {
  copy(environment, family.local_rank, "LOCAL_RANK", contract);
  copy(environment, family.local_size, "LOCAL_WORLD_SIZE", contract);
  copy(environment, family.node, "GROUP_RANK", contract);
  for (const auto* name : {"LOCAL_RANK", "LOCAL_WORLD_SIZE"}) {
    if (!contract.contains(name) && !environment.contains(name)) {
      cannot_derive(family, environment, name,
                    fmt::format("Set it in a small script around the program, as {} and {} are not there.",
                                family.local_rank, family.local_size));
    }
  }
}

std::string first_label(const std::string& host) { return host.substr(0, host.find('.')); }

/// The index of this host in the job's list, which identifies the node even if nodes have different numbers
/// of ranks.
void read_node(const Environment& environment, Environment& contract) {
  const bool one_host = find_variable(contract, "LOCAL_WORLD_SIZE") == find_variable(contract, "WORLD_SIZE");
  if (contract.contains("GROUP_RANK") || one_host) return;
  const std::string own = first_label(host_name());
  const auto hosts = job_hosts(environment);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (first_label(hosts[i]) != own) continue;
    contract["GROUP_RANK"] = fmt::to_string(i);
    contract["GROUP_WORLD_SIZE"] = fmt::to_string(hosts.size());
    return;
  }
}

std::string master_address(const Family& family, const Environment& environment,
                           const Environment& contract) {
  const auto local = find_variable(contract, "LOCAL_WORLD_SIZE");
  if (local == find_variable(contract, "WORLD_SIZE")) return "127.0.0.1";
  const auto hosts = job_hosts(environment);
  if (!hosts.empty()) return hosts.front();
  cannot_derive(family, environment, "MASTER_ADDR",
                "Set it to the name or address of rank 0's host, on every rank: 'mpirun -x MASTER_ADDR=HOST' "
                "(Open MPI) or 'mpiexec -genv MASTER_ADDR HOST' (MPICH, Intel). In a PBS job, export "
                "MASTER_ADDR=$(head -n 1 $PBS_NODEFILE) in the script.");
}

std::string master_port(const Family& family, const Environment& environment) {
  const std::string name = job_name(environment);
  if (!name.empty()) return fmt::to_string(port_of_name(name));
  cannot_derive(family, environment, "MASTER_PORT",
                "Set it to a free port of rank 0's host, the same on every rank, for example 29500.");
}

void read_master(const Family& family, const Environment& environment, Environment& contract) {
  if (!environment.contains("MASTER_ADDR"))
    contract["MASTER_ADDR"] = master_address(family, environment, contract);
  if (!environment.contains("MASTER_PORT")) contract["MASTER_PORT"] = master_port(family, environment);
}

std::optional<SchedulerInfo> mpi_info(const Environment& environment) {
  const Family* family = family_of(environment);
  if (family == nullptr && environment.contains("PMIX_RANK") && !environment.contains("SLURM_STEP_ID")) {
    throw UsageError(fmt::format(
        "this is rank {} of a PMIx job, but nothing tells how many ranks there are. Set WORLD_SIZE, RANK, "
        "LOCAL_RANK, "
        "LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or unset PMIX_RANK to run one process alone.",
        scheduler_text(environment, "PMIX_RANK")));
  }
  if (family == nullptr) return std::nullopt;
  SchedulerInfo info{.source = family->name, .contract = {}, .local_ranks = {}};
  const int size = scheduler_integer(environment, family->size, 1);
  const int rank = scheduler_integer(environment, family->rank, 0, size - 1);
  info.contract = {{"RANK", fmt::to_string(rank)}, {"WORLD_SIZE", fmt::to_string(size)}};
  if (size == 1) return info;
  read_local(*family, environment, info.contract);
  read_node(environment, info.contract);
  read_master(*family, environment, info.contract);
  const auto local_size = find_variable(info.contract, "LOCAL_WORLD_SIZE").value_or("1");
  info.own_devices = listed_devices(environment) < parse_whole_number(local_size).value_or(1);
  return info;
}

/// The words of a process's command line; empty if it cannot be read.
std::vector<std::string> words_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/cmdline", process), std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

/// "bash", "-bash", "/bin/zsh -l": a shell without a script or a command.
bool is_interactive_shell(const std::vector<std::string>& words) {
  static const std::set<std::string, std::less<>> kShells{"bash", "sh",  "zsh",  "dash", "ash",
                                                          "ksh",  "csh", "tcsh", "fish"};
  if (words.empty()) return false;
  std::string name = words.front().substr(words.front().rfind('/') + 1);
  if (name.starts_with('-')) name.erase(0, 1);
  return kShells.contains(name) && std::all_of(words.begin() + 1, words.end(), [](const std::string& word) {
           return word.starts_with('-') && word != "-c";
         });
}

}  // namespace

bool in_interactive_shell(const Environment& environment) {
  if (!environment.contains("SLURM_PTY_PORT")) return false;
  const auto task = parse_whole_number(find_variable(environment, "SLURM_TASK_PID").value_or(""), 1);
  return task && *task != getpid() && is_interactive_shell(words_of(*task));
}

std::optional<SchedulerInfo> scheduler_info(const Environment& environment) {
  const auto step = slurm_step(environment);
  // The shell's task may have srun's PMI_RANK, which mpiexec within it replaces.
  const bool pmi_of_shell =
      find_variable(environment, "PMI_RANK") == find_variable(environment, "SLURM_PROCID") &&
      !environment.contains("MPI_LOCALRANKID");
  if (!step && in_interactive_shell(environment) && pmi_of_shell) return std::nullopt;
  if (pmi_of_slurm(environment, step)) return slurm_info(environment, *step);
  if (auto info = mpi_info(environment)) return info;
  if (step) return slurm_info(environment, *step);
  return std::nullopt;
}

std::optional<std::string> lonely_process_warning(const Environment& environment) {
  if (environment.contains("WORLD_SIZE") || scheduler_info(environment)) return std::nullopt;
  const auto tasks = parse_whole_number(find_variable(environment, "SLURM_NTASKS").value_or(""));
  if (environment.contains("SLURM_JOB_ID")) {
    if (tasks.value_or(1) <= 1) return std::nullopt;
    if (in_interactive_shell(environment)) {
      return fmt::format(
          "this is the shell of an interactive Slurm step of {} tasks, so the program runs as one process "
          "alone. For "
          "several ranks on this node, 'lockstep run --standalone --nproc-per-node N PROGRAM'; for all "
          "tasks, leave "
          "the shell and use 'srun PROGRAM'.",
          find_variable(environment, "SLURM_NTASKS").value_or("?"));
    }
    return fmt::format(
        "Slurm job {} has {} tasks, but this program was not started by srun, so it runs as one process "
        "alone. "
        "Start "
        "it with 'srun PROGRAM', one task for each rank, or with 'srun --ntasks-per-node=1 lockstep run ... "
        "PROGRAM', "
        "one launcher for each node.",
        find_variable(environment, "SLURM_JOB_ID").value_or("?"),
        find_variable(environment, "SLURM_NTASKS").value_or("?"));
  }
  const auto hosts = job_hosts(environment);
  if (hosts.size() < 2) return std::nullopt;
  return fmt::format(
      "this job has {} hosts, {} the first, but this program was started without mpiexec or jsrun, so it "
      "runs as "
      "one process alone.",
      hosts.size(), hosts.front());
}

}  // namespace lockstep
