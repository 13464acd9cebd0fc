#pragma once

#include <optional>
#include <vector>

#include "lockstep/core/environment.hpp"
#include "shm/step_sync.hpp"

namespace lockstep::comm {

/// What LOCKSTEP_COMM_AFFINITY says: `auto` (nothing here), `off` (no CPUs), or the CPUs of a host's
/// communication threads, one for each of its ranks: "15,31". Throws UsageError for anything else.
std::optional<std::vector<int>> communication_affinity(const Environment& environment);

/// Where this rank's communication thread is to run; -1: anywhere. A CPU that the setting names and the
/// system refuses is one line of warning on standard error, and the thread runs anywhere. Throws UsageError,
/// on all ranks of the host, when the setting names fewer CPUs than ranks.
int communication_cpu(const std::optional<std::vector<int>>& setting, const shm::StepSync& sync);

}  // namespace lockstep::comm
