#pragma once

#include <set>
#include <string>
#include <vector>

namespace lockstep {

/// Numbers of CPUs, or of NUMA nodes.
using CpuSet = std::set<int>;

/// No host has as many.
inline constexpr int kMaxCpus = 1 << 16;

/// The kernel's form: "0-2,4,6-7". *Local*.
std::string cpu_list_text(const CpuSet& cpus);

/// Reads the kernel's form. What is no such list gives the numbers before the mistake: these texts come from
/// the kernel, or from a rank of this job. Never more than kMaxCpus numbers. *Local*.
CpuSet parse_cpu_list(const std::string& text);

CpuSet intersection(const CpuSet& left, const CpuSet& right);

/// The CPUs on which the calling thread may run: its affinity, which the kernel keeps inside the cgroup's
/// cpuset. All of the machine's where the system does not say. *Local*.
CpuSet allowed_cpus();

/// Lets the calling thread, and the threads and processes that it starts, run on these CPUs only. False, with
/// errno set, when the system refuses. *Local*.
bool bind_thread_to(const CpuSet& cpus) noexcept;

/// The cgroup of a process in one hierarchy: a line of /proc/<pid>/cgroup. cgroups(7).
struct CgroupMembership {
  /// "cpu,cpuacct"; empty: cgroup v2, which has all controllers.
  std::string controllers;
  std::string path;

  bool is_v2() const noexcept { return controllers.empty(); }
  /// Whether it is the v1 hierarchy of this controller.
  bool has(const std::string& controller) const;
};

/// Lines that are of another form are left out. Never throws for what it finds. *Local*.
std::vector<CgroupMembership> read_cgroups(const std::string& file);

}  // namespace lockstep
