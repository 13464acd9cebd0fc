#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/cpu_set.hpp"
#include "lockstep/core/environment.hpp"

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

  /// One that the kernel does not describe is a core and a cache of its own.
  Cpu cpu(int number) const;
  /// None when there is no such node.
  CpuSet cpus_of(int node) const;
};

/// Reads `<root>/devices/system/{cpu,node}`. What the kernel does not tell is taken as simple as it can be:
/// one node, one package, each CPU a core and a cache of its own. Never throws for what it finds. *Local*.
Topology read_topology(const std::string& root = "/sys");

/// The NUMA node of every NVIDIA GPU that a program would see, in the order of CUDA_VISIBLE_DEVICES, as
/// `<sys>/bus/pci/devices/<address>/numa_node` says it; -1 there means 0. The GPUs are those of
/// `<proc>/driver/nvidia/gpus`, else the display devices of NVIDIA on the PCI bus, in the order of their
/// addresses: CUDA's own order on a host whose GPUs are all alike. Throws UsageError that names what is
/// missing. *Local*.
std::vector<int> gpu_nodes(const Environment& environment, const std::string& sys = "/sys",
                           const std::string& proc = "/proc");

}  // namespace lockstep::launch
