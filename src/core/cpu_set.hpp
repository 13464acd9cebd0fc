#pragma once

#include <set>
#include <string>
#include <vector>

namespace lockstep {

/// Numbers of CPUs, or of NUMA nodes.
using CpuSet = std::set<int>;

/// More than any host has.
inline constexpr int kMaxCpus = 1 << 16;

/// The kernel's format: "0-2,4,6-7". *Local*.
std::string cpu_list_text(const CpuSet& cpus);

/// Parses the kernel's format. For malformed text, returns the numbers before the error: these texts come
/// from the kernel or from a rank of this job. Never more than kMaxCpus numbers. *Local*.
CpuSet parse_cpu_list(const std::string& text);

/// The CPUs on which the calling thread may run: its affinity, which the kernel restricts to the cgroup's
/// cpuset. All CPUs of the machine if the system does not provide it. *Local*.
CpuSet allowed_cpus();

/// How many CPUs' worth of time this process may use: allowed_cpus(), limited by the quotas of its cgroup and
/// of that's ancestors, rounded up; at least 1. The files are those of ProcessorFiles. *Local*.
int usable_cpus(const std::string& membership = "/proc/self/cgroup",
                const std::string& mount = "/sys/fs/cgroup");

/// Restricts the calling thread, and the threads and processes that it starts, to these CPUs. Returns false,
/// with errno set, if the system refuses. *Local*.
bool bind_thread_to(const CpuSet& cpus) noexcept;

/// The cgroup of a process in one hierarchy: a line of /proc/<pid>/cgroup. See cgroups(7).
struct CgroupMembership {
  /// "cpu,cpuacct"; empty: cgroup v2, which has all controllers.
  std::string controllers;
  std::string path;

  bool is_v2() const noexcept { return controllers.empty(); }
  /// Whether it is the v1 hierarchy of this controller.
  bool has(const std::string& controller) const;
};

/// Skips malformed lines. Never throws because of the file's content. *Local*.
std::vector<CgroupMembership> read_cgroups(const std::string& file);

}  // namespace lockstep
