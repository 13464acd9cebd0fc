#pragma once

#include <set>
#include <string>

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

}  // namespace lockstep
