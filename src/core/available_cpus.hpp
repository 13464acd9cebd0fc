#pragma once

#include <filesystem>

#include "lockstep/core/environment.hpp"

namespace lockstep {

/// Paths that available_cpus() reads; changed only by tests.
struct ProcessorFiles {
  /// The cgroups of this process, one per line: "number:controllers:path".
  std::filesystem::path membership = "/proc/self/cgroup";
  /// Mount point of the cgroup file system.
  std::filesystem::path mount = "/sys/fs/cgroup";
};

/// How many worker threads this process should run: the default number of workers of a loader or a map. At
/// least 1.
///
/// 1. SLURM_CPUS_PER_TASK, if it is a positive integer. A launcher is one task with several ranks, so a rank
///    that it started (TORCHELASTIC_RUN_ID is set) gets its share: the number divided by LOCAL_WORLD_SIZE,
///    limited by 2.
/// 2. Otherwise the CPUs that the calling thread may run on (sched_getaffinity, restricted by a job's cpuset
///    and by `lockstep run --cpu-binding`), limited by the CPU time of the process's cgroup and its
///    ancestors: `cpu.max` (version 2), `cpu.cfs_quota_us` / `cpu.cfs_period_us` (version 1), rounded up.
/// 3. If the system provides neither, the number of CPUs of the machine.
///
/// *Local*, any thread. Source: docs.kernel.org, "Control Group v2" (cpu.max) and "CFS Bandwidth Control".
int available_cpus(const Environment& environment, const ProcessorFiles& files = {});

}  // namespace lockstep
