#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/cpu_set.hpp"

namespace lockstep::launch {

/// One logical CPU: the groups that it belongs to, each named by its lowest CPU.
struct Cpu {
  int node = 0;
  int package = 0;
  /// The CPUs that share its cache of the highest level.
  int cache = 0;
  /// The physical core: its hardware threads (SMT siblings).
  int core = 0;
};

/// How the CPUs of this host lie together.
struct Topology {
  std::map<int, Cpu> cpus;
  /// NUMA nodes that have CPUs, with all of them, whether they may be used or not.
  std::map<int, CpuSet> nodes;

  /// The CPUs of a node; none when there is no such node.
  CpuSet cpus_of(int node) const;
};

/// Reads `<root>/devices/system/{cpu,node}`. What the kernel does not tell is taken as simple as it can be:
/// one node, one package, each CPU a core and a cache of its own. Never throws for what it finds. *Local*.
Topology read_topology(const std::string& root = "/sys");

}  // namespace lockstep::launch
