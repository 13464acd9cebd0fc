#pragma once

#include <optional>
#include <vector>

#include "core/cpu_set.hpp"
#include "lockstep/core/environment.hpp"

namespace lockstep::shm {

class StepSync;

/// The CPUs that a rank may use, and the number of its computing threads.
struct Processors {
  CpuSet cpus;
  int threads = 1;
};

/// The number of different CPUs that these ranks may use together.
int count_cpus(const std::vector<Processors>& ranks);

/// A different CPU for the communication thread of each of these ranks, if this leaves each rank one CPU per
/// computing thread; otherwise empty. Takes the highest free CPU of each rank, because programs that pin
/// threads start with the lowest.
std::vector<int> communication_cpus(const std::vector<Processors>& ranks);

/// The value of LOCKSTEP_COMM_AFFINITY: std::nullopt for `auto`, an empty list for `off`, or the CPUs of the
/// communication threads, one per rank of the host: "15,31". Throws UsageError for any other value.
std::optional<std::vector<int>> communication_affinity(const Environment& environment);

/// CPU of this rank's communication thread; -1: any. If the system refuses a CPU of the setting, a warning is
/// written to standard error and the thread is not pinned. Throws UsageError, on all ranks of the host, if
/// the setting lists fewer CPUs than ranks.
int communication_cpu(const std::optional<std::vector<int>>& setting, const StepSync& sync);

}  // namespace lockstep::shm
