#include <fmt/format.h>

#include "core/cluster/scheduler_info.hpp"
#include "core/host_name.hpp"
#include "core/variables.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

using namespace variables;

/// How one kind of MPI launcher names what torchrun calls RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE and
/// GROUP_RANK; an empty name: it does not say.
struct Family {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  const char* node;
};

/// The ones that also set another's variables come first.
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
    if (has(environment, family.rank)) return &family;
  }
  return nullptr;
}

void copy(const Environment& environment, const char* source, const char* target, Environment& contract) {
  if (*source != '\0' && has(environment, source))
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
    if (!has(contract, name) && !has(environment, name)) {
      cannot_derive(family, environment, name,
                    fmt::format("Set it in a small script around the program, as {} and {} are not there.",
                                family.local_rank, family.local_size));
    }
  }
}

std::string first_label(const std::string& host) { return host.substr(0, host.find('.')); }

/// The number of this host among the job's, which tells the node where nodes have unequally many ranks.
void read_node(const Environment& environment, Environment& contract) {
  const bool one_host = find_variable(contract, "LOCAL_WORLD_SIZE") == find_variable(contract, "WORLD_SIZE");
  if (has(contract, "GROUP_RANK") || one_host) return;
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
  if (!has(environment, "MASTER_ADDR"))
    contract["MASTER_ADDR"] = master_address(family, environment, contract);
  if (!has(environment, "MASTER_PORT")) contract["MASTER_PORT"] = master_port(family, environment);
}

}  // namespace

std::optional<SchedulerInfo> mpi_info(const Environment& environment) {
  const Family* family = family_of(environment);
  if (family == nullptr && has(environment, "PMIX_RANK") && !has(environment, "SLURM_STEP_ID")) {
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
  info.own_devices = listed_devices(environment).value_or(kLargest) < whole_number(local_size).value_or(1);
  return info;
}

}  // namespace lockstep
