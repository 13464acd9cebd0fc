#pragma once

#include <set>
#include <string>

#include "core/cpu_list.hpp"

namespace lockstep::launch {

/// Numbers of CPUs, or of NUMA nodes.
using CpuSet = std::set<int>;

/// Reads the kernel's form, "0-2,4,6-7". What is no such list gives the numbers before the mistake: these
/// texts come from the kernel. Never more than 65,536 numbers. *Local*.
CpuSet parse_cpu_list(const std::string& text);

CpuSet intersection(const CpuSet& left, const CpuSet& right);

/// The CPUs on which the calling thread may run: its affinity, which the kernel keeps inside the cgroup's
/// cpuset. *Local*.
CpuSet allowed_cpus();

/// Lets the calling thread, and the processes that it starts, run on these CPUs only. Throws lockstep::Error
/// that names them when the system refuses. *Local*.
void allow_cpus(const CpuSet& cpus);

}  // namespace lockstep::launch
