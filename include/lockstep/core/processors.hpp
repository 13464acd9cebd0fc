#pragma once

#include <filesystem>

#include "lockstep/core/environment.hpp"

namespace lockstep {

/// Where available_cpus() looks; others only in tests.
struct ProcessorFiles {
  /// Names the cgroups of this process, one a line: "number:controllers:path".
  std::filesystem::path membership = "/proc/self/cgroup";
  /// Where the file system of cgroups is seen.
  std::filesystem::path mount = "/sys/fs/cgroup";
};

/// How many threads of work this process should run at once: the number of workers of a loader or a map that
/// was told none. At least 1.
///
/// 1. SLURM_CPUS_PER_TASK, where it is a whole number. A launcher is one task with several ranks, so a rank
///    that it started (TORCHELASTIC_RUN_ID is set) gets its part: the number over LOCAL_WORLD_SIZE, and no
///    more than what it may run on.
/// 2. Else the processors that the calling thread may run on (sched_getaffinity, which a job's cpuset and
///    `lockstep run --cpu-binding` narrow), and no more than the CPU time that the cgroups above the process
///    allow: `cpu.max` (version 2), `cpu.cfs_quota_us` over `cpu.cfs_period_us` (version 1), rounded up.
/// 3. Else, where the system tells neither, the machine's processors.
///
/// *Local*, any thread. Source: docs.kernel.org, "Control Group v2" (cpu.max) and "CFS Bandwidth Control".
int available_cpus(const Environment& environment, const ProcessorFiles& files = {});

}  // namespace lockstep
