#include "shm/processors.hpp"

#include <algorithm>

namespace lockstep::shm {
namespace {

/// The highest of these that nobody has taken; -1: there is none.
int highest_free(const CpuSet& cpus, const CpuSet& taken) {
  const auto found = std::find_if(cpus.rbegin(), cpus.rend(), [&](int cpu) { return !taken.contains(cpu); });
  return found == cpus.rend() ? -1 : *found;
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

}  // namespace lockstep::shm
