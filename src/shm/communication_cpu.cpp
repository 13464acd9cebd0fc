#include "shm/communication_cpu.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <string_view>

#include "core/runtime/signal_free_thread.hpp"
#include "core/text.hpp"
#include "lockstep/core/error.hpp"
#include "shm/step_sync.hpp"

namespace lockstep::shm {
namespace {

constexpr const char* kVariable = "LOCKSTEP_COMM_AFFINITY";

/// The highest of `cpus` that is not taken; -1: none.
int highest_free(const CpuSet& cpus, const CpuSet& taken) {
  const auto found = std::find_if(cpus.rbegin(), cpus.rend(), [&](int cpu) { return !taken.contains(cpu); });
  return found == cpus.rend() ? -1 : *found;
}

/// Tries it: there may be limits (cpusets) that this thread's CPU set does not show, and the system may also
/// allow more than that set.
bool may_be_used(int cpu) {
  bool bound = false;
  signal_free_thread([&] { bound = bind_thread_to({cpu}); }).join();
  return bound;
}

}  // namespace

int count_cpus(const std::vector<Processors>& ranks) {
  CpuSet all;
  for (const auto& rank : ranks) all.insert(rank.cpus.begin(), rank.cpus.end());
  return static_cast<int>(all.size());
}

std::vector<int> communication_cpus(const std::vector<Processors>& ranks) {
  int needed = 0;
  for (const auto& rank : ranks) needed += rank.threads + 1;
  if (count_cpus(ranks) < needed) return {};
  std::vector<int> chosen;
  CpuSet taken;
  for (const auto& rank : ranks) {
    const int cpu = highest_free(rank.cpus, taken);
    if (cpu < 0 || static_cast<int>(rank.cpus.size()) <= rank.threads) return {};
    taken.insert(cpu);
    chosen.push_back(cpu);
  }
  return chosen;
}

std::optional<std::vector<int>> communication_affinity(const Environment& environment) {
  const std::string value = find_variable(environment, kVariable).value_or("");
  if (value.empty() || value == "auto") return std::nullopt;
  std::vector<int> cpus;
  if (value == "off") return cpus;
  for (const std::string_view part : split_at_commas(value)) {
    const auto cpu = parse_whole_number(part, 0, kMaxCpus - 1);
    if (!cpu) {
      throw UsageError(
          fmt::format("environment variable {}='{}': expected auto, off, or CPU numbers with "
                      "commas between, one for each rank of a host",
                      kVariable, value));
    }
    cpus.push_back(*cpu);
  }
  return cpus;
}

int communication_cpu(const std::optional<std::vector<int>>& setting, const StepSync& sync) {
  if (!setting) return sync.communication_cpu();
  if (setting->empty()) return -1;
  if (setting->size() < static_cast<std::size_t>(sync.size())) {
    throw UsageError(
        fmt::format("{}: {} names {} CPUs, but this host has {} ranks: name one for each, or leave "
                    "the choice to 'auto'",
                    sync.members().who, kVariable, setting->size(), sync.size()));
  }
  const int cpu = (*setting)[static_cast<std::size_t>(sync.rank())];
  if (may_be_used(cpu)) return cpu;
  std::cerr
      << fmt::format(
             "lockstep: warning: {}: {} names CPU {} for this rank, which may not use it (it may use {}): "
             "its communication thread is not bound\n",
             sync.members().who, kVariable, cpu, cpu_list_text(allowed_cpus()))
      << std::flush;
  return -1;
}

}  // namespace lockstep::shm
