#pragma once

#include <optional>
#include <vector>

#include "process/topology.hpp"

namespace lockstep::launch {

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
