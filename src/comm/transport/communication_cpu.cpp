#include "comm/transport/communication_cpu.hpp"

#include <algorithm>
#include <iostream>
#include <string>
#include <string_view>

#include "core/cpu_set.hpp"
#include "core/variables.hpp"
#include "lockstep/core/error.hpp"
#include "net/signal_free_thread.hpp"

namespace lockstep::comm {
namespace {

constexpr const char* kVariable = "LOCKSTEP_COMM_AFFINITY";
constexpr int kHighest = 65535;

int cpu_of(std::string_view digits, const std::string& value) {
  if (const auto cpu = variables::whole_number(digits, 0, kHighest)) return *cpu;
  throw UsageError(std::string("environment variable ") + kVariable + "='" + value +
                   "': expected auto, off, or CPU numbers with commas between, one for each rank of a host");
}

/// Asks the system, which may know limits (cpusets) that the set of CPUs of this thread does not show, and
/// may allow more than that set.
bool may_be_used(int cpu) {
  bool bound = false;
  net::signal_free_thread([&] { bound = bind_thread_to({cpu}); }).join();
  return bound;
}

int unless_refused(int cpu, const std::string& who) {
  if (may_be_used(cpu)) return cpu;
  std::cerr << "lockstep: warning: " + who + ": " + kVariable + " names CPU " + std::to_string(cpu) +
                   " for this rank, which may not use it (it may use " + cpu_list_text(allowed_cpus()) +
                   "): its communication thread is not bound\n"
            << std::flush;
  return -1;
}

}  // namespace

std::optional<std::vector<int>> communication_affinity(const Environment& environment) {
  const std::string value = find_variable(environment, kVariable).value_or("");
  if (value.empty() || value == "auto") return std::nullopt;
  std::vector<int> cpus;
  if (value == "off") return cpus;
  for (std::size_t begin = 0; begin <= value.size();) {
    const std::size_t end = std::min(value.find(',', begin), value.size());
    cpus.push_back(cpu_of(std::string_view(value).substr(begin, end - begin), value));
    begin = end + 1;
  }
  return cpus;
}

int communication_cpu(const std::optional<std::vector<int>>& setting, const shm::StepSync& sync) {
  if (!setting) return sync.communication_cpu();
  if (setting->empty()) return -1;
  if (setting->size() >= static_cast<std::size_t>(sync.size()))
    return unless_refused((*setting)[static_cast<std::size_t>(sync.rank())], sync.members().who);
  throw UsageError(sync.members().who + ": " + kVariable + " names " + std::to_string(setting->size()) +
                   " CPUs, but this host has " + std::to_string(sync.size()) +
                   " ranks: name one for each, or leave the choice to 'auto'");
}

}  // namespace lockstep::comm
