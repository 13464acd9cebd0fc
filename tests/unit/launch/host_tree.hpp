#pragma once

#include <string>
#include <vector>

#include "core/cpu_set.hpp"

namespace lockstep::launch {

/// A made-up host. CPUs are numbered as Linux does it: first one hardware thread of every core, then the
/// others.
struct MadeUpHost {
  int packages = 1;
  int nodes_per_package = 1;
  int caches_per_node = 1;
  int cores_per_cache = 1;
  int threads_per_core = 1;
  /// The NUMA node of every GPU; -1 is written as it stands.
  std::vector<int> gpu_nodes = {};

  int nodes() const { return packages * nodes_per_package; }
  int cores() const { return nodes() * caches_per_node * cores_per_cache; }
  int cpus() const { return cores() * threads_per_core; }
  CpuSet all_cpus() const;

  /// Writes `<folder>/sys` and `<folder>/proc` as the kernel and NVIDIA's driver would show it, and a device
  /// file
  /// `<folder>/dev/nvidiaN` for each GPU.
  void write(const std::string& folder) const;
};

/// The address of a made-up GPU: "0000:01:00.0".
std::string gpu_address(std::size_t index);
/// The UUID that the made-up driver tells for it.
std::string gpu_uuid(std::size_t index);

}  // namespace lockstep::launch
