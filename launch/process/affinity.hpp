#pragma once

#include <map>
#include <optional>
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

/// The entries of CUDA_VISIBLE_DEVICES on a host with so many GPUs, as CUDA reads them: the list ends at its
/// first entry that names none (a number below `gpus`, "GPU-..." or "MIG-..."). Nothing where it is unset.
std::optional<std::vector<std::string>> listed_devices(const Environment& environment, int gpus);

/// The NUMA node of every NVIDIA GPU that a program would see, in the order of CUDA_VISIBLE_DEVICES, as
/// `<sys>/bus/pci/devices/<address>/numa_node` says it; -1 there means 0. The GPUs are those of
/// `<proc>/driver/nvidia/gpus`, else the display devices of NVIDIA on the PCI bus, in the order of their
/// addresses: CUDA's own order on a host whose GPUs are all alike. Throws UsageError that names what is
/// missing. *Local*.
std::vector<int> gpu_nodes(const Environment& environment, const std::string& sys = "/sys",
                           const std::string& proc = "/proc");

/// How ranks are bound to CPUs. `block`: each rank has its own share of all CPUs. The others are torchrun's
/// `--numa-binding`, by the NUMA node of the rank's device: `node` all CPUs of that node, `socket` all of its
/// package, `exclusive` an own share of the node's cores, `core_complex` the CPUs below one cache.
enum class BindingMode { none, block, node, socket, exclusive, core_complex };

/// The CPUs of each rank, none of them outside of `allowed`. Blocks follow the NUMA nodes, hold whole cores
/// as long as there are as many cores as ranks, and differ by at most one core within a node. Empty where
/// ranks outnumber CPUs. *Local*.
std::vector<CpuSet> cpu_blocks(const Topology& topology, const CpuSet& allowed, int ranks);

/// The CPUs of each device, by torch 2.11's rules (torch/numa/binding.py): `device_nodes` names the NUMA node
/// of every device that is visible. Throws UsageError where a node has no CPU that may be used, or, for
/// `exclusive`, fewer cores than devices. *Local*.
std::vector<CpuSet> cpus_by_device(BindingMode mode, const Topology& topology, const CpuSet& allowed,
                                   const std::vector<int>& device_nodes);

/// For ranks without devices: the nodes that have CPUs in `allowed`, in turn. *Local*.
std::vector<int> nodes_in_turn(const Topology& topology, const CpuSet& allowed, int ranks);

/// The NUMA nodes on which the CPUs lie.
CpuSet nodes_of(const Topology& topology, const CpuSet& cpus);

/// Where one rank runs.
struct CpuBinding {
  /// Empty: wherever the launcher may run.
  CpuSet cpus = {};
  /// The NUMA node from which the rank takes memory first; nothing: the system's own way.
  std::optional<int> memory_node = std::nullopt;
};

/// Binds the calling thread for a while: a process that it starts meanwhile inherits the binding, so that it
/// is in force before the first instruction and the first page of the program. (A child of fork could bind
/// itself, but could not say why it failed.) A memory policy that the user gave the launcher, as with
/// numactl, is left alone.
class ScopedBinding {
 public:
  /// Throws lockstep::Error that names the CPUs when the system refuses. A refused memory policy (containers
  /// forbid it) costs speed only and is passed over.
  explicit ScopedBinding(const CpuBinding& binding);
  ~ScopedBinding();
  ScopedBinding(const ScopedBinding&) = delete;
  ScopedBinding& operator=(const ScopedBinding&) = delete;

 private:
  CpuSet before_;
  bool has_policy_ = false;
};

}  // namespace lockstep::launch
