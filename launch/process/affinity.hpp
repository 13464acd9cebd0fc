#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/cpu_set.hpp"
#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// One logical CPU and the groups to which it belongs, each named by its lowest CPU.
struct Cpu {
  int node = 0;
  int package = 0;
  /// The CPUs that share its highest-level cache.
  int cache = 0;
  /// The physical core with its hardware threads (SMT siblings).
  int core = 0;
};

/// The CPU topology of this host.
struct Topology {
  std::map<int, Cpu> cpus;

  /// A CPU that the kernel does not describe is its own core and cache.
  Cpu cpu(int number) const;
  /// The NUMA nodes that have CPUs, usable or not.
  CpuSet nodes() const;
};

/// Reads `<root>/devices/system/{cpu,node}`. For missing facts it assumes one node, one package, and one core
/// and cache per CPU. Does not throw for missing or damaged files. *Local*.
Topology read_topology(const std::string& root = "/sys");

/// The NUMA node of every NVIDIA GPU that a program would see, in the order of CUDA_VISIBLE_DEVICES, from
/// `<sys>/bus/pci/devices/<address>/numa_node`; -1 there means 0. The GPUs are those of
/// `<proc>/driver/nvidia/gpus`, otherwise NVIDIA's display devices on the PCI bus, ordered by address: CUDA's
/// own order if all GPUs are of one kind. Throws UsageError that names what is missing. *Local*.
std::vector<int> gpu_nodes(const Environment& environment, const std::string& sys = "/sys",
                           const std::string& proc = "/proc");

/// How ranks are bound to CPUs. `block`: each rank to its own share of all CPUs. The others are torchrun's
/// `--numa-binding`, by the NUMA node of the rank's device: `node` to all CPUs of that node, `socket` to all
/// of its package, `exclusive` to its own share of the node's cores, `core_complex` to the CPUs that share
/// one cache.
enum class BindingMode { none, block, node, socket, exclusive, core_complex };

/// The CPUs of each rank, all from `allowed`. Blocks follow the NUMA nodes, consist of whole cores if there
/// are at least as many cores as ranks, and differ by at most one core within a node. Empty if ranks
/// outnumber CPUs. *Local*.
std::vector<CpuSet> cpu_blocks(const Topology& topology, const CpuSet& allowed, int ranks);

/// The CPUs of each device, by torch 2.11's rules (torch/numa/binding.py). `device_nodes` is the NUMA node of
/// every visible device. Throws UsageError if a node has no usable CPU or, for `exclusive`, fewer cores than
/// devices. *Local*.
std::vector<CpuSet> cpus_by_device(BindingMode mode, const Topology& topology, const CpuSet& allowed,
                                   const std::vector<int>& device_nodes);

/// For ranks without devices: the nodes that have CPUs in `allowed`, in turn. *Local*.
std::vector<int> nodes_in_turn(const Topology& topology, const CpuSet& allowed, int ranks);

/// The NUMA nodes of the CPUs.
CpuSet find_numa_nodes(const Topology& topology, const CpuSet& cpus);

/// The binding of one rank.
struct CpuBinding {
  /// Empty: all CPUs of the launcher.
  CpuSet cpus = {};
  /// The NUMA node that the rank prefers for memory; nullopt: the system's default.
  std::optional<int> memory_node = std::nullopt;
};

/// Binds the calling thread temporarily. A process that it starts meanwhile inherits the binding, so it is in
/// effect before the program's first instruction and first page. (A child of fork could bind itself, but
/// could not report an error.) A memory policy that the launcher already has, as from numactl, is kept.
class ScopedBinding {
 public:
  /// Throws lockstep::Error that names the CPUs if the system refuses. A refused memory policy (containers
  /// forbid it) only costs speed and is ignored.
  explicit ScopedBinding(const CpuBinding& binding);
  ~ScopedBinding();
  ScopedBinding(const ScopedBinding&) = delete;
  ScopedBinding& operator=(const ScopedBinding&) = delete;

 private:
  CpuSet before_;
  bool has_policy_ = false;
};

}  // namespace lockstep::launch
