#pragma once

#include <optional>
#include <vector>

#include "core/cpu_set.hpp"
#include "lockstep/core/environment.hpp"

namespace lockstep::shm {

class StepSync;

/// Which CPUs a rank may use, and how many of them its computing takes.
struct Processors {
  CpuSet cpus;
  int threads = 1;
};

/// How many different CPUs these ranks may use together.
int count_cpus(const std::vector<Processors>& ranks);

/// A CPU for the communication thread of each of these ranks, no two the same, where that leaves each rank
/// one for each of its computing threads; else none. Of a rank's CPUs the highest that is free, because
/// programs that bind threads begin with the lowest.
std::vector<int> communication_cpus(const std::vector<Processors>& ranks);

/// What LOCKSTEP_COMM_AFFINITY says: `auto` (nothing here), `off` (no CPUs), or the CPUs of a host's
/// communication threads, one for each of its ranks: "15,31". Throws UsageError for anything else.
std::optional<std::vector<int>> communication_affinity(const Environment& environment);

/// Where this rank's communication thread is to run; -1: anywhere. A CPU that the setting names and the
/// system refuses is one line of warning on standard error, and the thread runs anywhere. Throws UsageError,
/// on all ranks of the host, when the setting names fewer CPUs than ranks.
int communication_cpu(const std::optional<std::vector<int>>& setting, const StepSync& sync);

}  // namespace lockstep::shm
