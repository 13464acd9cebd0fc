#include <algorithm>
#include <fstream>
#include <sstream>

#include "core/cluster/scheduler_info.hpp"
#include "core/variables.hpp"
#include "lockstep/core/cluster/hostlist.hpp"

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

}  // namespace lockstep
