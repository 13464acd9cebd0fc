#include "process/affinity.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

using Groups = std::vector<CpuSet>;

Cpu described(const Topology& topology, int cpu) {
  const auto found = topology.cpus.find(cpu);
  return found == topology.cpus.end() ? Cpu{.cache = cpu, .core = cpu} : found->second;
}

/// The CPUs in groups of one `key` each, in the order of the keys.
template <class Key>
Groups grouped(const CpuSet& cpus, const Key& key) {
  std::map<int, CpuSet> groups;
  for (const int cpu : cpus) groups[key(cpu)].insert(cpu);
  Groups result;
  for (auto& [unused, group] : groups) result.push_back(std::move(group));
  return result;
}

Groups cores_of(const Topology& topology, const CpuSet& cpus) {
  return grouped(cpus, [&](int cpu) { return described(topology, cpu).core; });
}

CpuSet merged(Groups::const_iterator begin, Groups::const_iterator end) {
  CpuSet result;
  for (; begin != end; ++begin) result.insert(begin->begin(), begin->end());
  return result;
}

/// The groups dealt into `parts` runs; the first ones have one group more where it does not come out even.
Groups dealt(const Groups& groups, std::size_t parts) {
  Groups result;
  const std::size_t each = groups.size() / parts;
  const std::size_t rest = groups.size() % parts;
  auto begin = groups.begin();
  for (std::size_t part = 0; part < parts; ++part) {
    const auto end = begin + static_cast<std::ptrdiff_t>(each + (part < rest ? 1 : 0));
    result.push_back(merged(begin, end));
    begin = end;
  }
  return result;
}

/// The smallest pieces that a block consists of: cores in the order in which they lie together, or, where
/// ranks outnumber the cores, single CPUs.
std::vector<Groups> pieces_by_node(const Topology& topology, const CpuSet& allowed, std::size_t ranks) {
  std::vector<Groups> cores;
  std::size_t count = 0;
  for (const CpuSet& node : grouped(allowed, [&](int cpu) { return described(topology, cpu).node; })) {
    Groups of_node;
    const auto by_cache = [&](int cpu) { return described(topology, cpu).cache; };
    for (const CpuSet& cache : grouped(node, by_cache)) {
      for (auto& core : cores_of(topology, cache)) of_node.push_back(std::move(core));
    }
    count += of_node.size();
    cores.push_back(std::move(of_node));
  }
  if (count >= ranks) return cores;
  for (auto& node : cores) {
    Groups threads;
    for (const CpuSet& core : node) {
      for (const int cpu : core) threads.push_back({cpu});
    }
    node = std::move(threads);
  }
  return cores;
}

/// How many ranks each node gets: as evenly by its pieces as whole ranks allow, and never more than it has
/// pieces.
std::vector<std::size_t> ranks_by_node(const std::vector<Groups>& nodes, std::size_t ranks) {
  std::vector<std::size_t> result(nodes.size(), 1);
  const auto share = [&](std::size_t i) {
    return static_cast<double>(nodes[i].size()) / static_cast<double>(result[i] + 1);
  };
  for (std::size_t given = nodes.size(); given < ranks; ++given) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < nodes.size(); ++i) {
      if (share(i) > share(best)) best = i;
    }
    ++result[best];
  }
  return result;
}

CpuSet all_of(const Groups& groups) { return merged(groups.begin(), groups.end()); }

/// A node's CPUs for each of the ranks; with fewer ranks than nodes, whole nodes for each.
std::vector<CpuSet> blocks_of(const std::vector<Groups>& nodes, std::size_t ranks) {
  std::vector<CpuSet> result;
  if (ranks < nodes.size()) {
    Groups whole;
    for (const auto& node : nodes) whole.push_back(all_of(node));
    return dealt(whole, ranks);
  }
  const auto shares = ranks_by_node(nodes, ranks);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (auto& block : dealt(nodes[i], shares[i])) result.push_back(std::move(block));
  }
  return result;
}

CpuSet node_cpus(const Topology& topology, const CpuSet& allowed, int node) {
  CpuSet cpus = intersection(topology.cpus_of(node), allowed);
  if (!cpus.empty()) return cpus;
  throw UsageError(
      fmt::format("NUMA node {} of a rank's device has none of the CPUs that this job may use ({}): "
                  "widen the job's CPUs, or use --cpu-binding none.",
                  node, cpu_list_text(allowed)));
}

int package_of(const Topology& topology, const CpuSet& cpus) {
  return described(topology, *cpus.begin()).package;
}

CpuSet socket_cpus(const Topology& topology, const CpuSet& allowed, int node) {
  const int package = package_of(topology, node_cpus(topology, allowed, node));
  CpuSet result;
  for (const auto& [unused, cpus] : topology.nodes) {
    const CpuSet usable = intersection(cpus, allowed);
    if (!usable.empty() && package_of(topology, usable) == package)
      result.insert(usable.begin(), usable.end());
  }
  return result;
}

CpuSet exclusive_cpus(const Topology& topology, const CpuSet& usable, std::size_t place,
                      std::size_t devices) {
  const Groups cores = cores_of(topology, usable);
  if (cores.size() >= devices) return dealt(cores, devices)[place];
  throw UsageError(
      fmt::format("--numa-binding exclusive: {} ranks share a NUMA node with {} cores that this job may use "
                  "({}). Start fewer "
                  "ranks, or use --numa-binding node.",
                  devices, cores.size(), cpu_list_text(usable)));
}

/// Caches with more CPUs that may be used come first.
CpuSet complex_cpus(const Topology& topology, const CpuSet& usable, std::size_t place) {
  Groups caches = grouped(usable, [&](int cpu) { return described(topology, cpu).cache; });
  std::stable_sort(caches.begin(), caches.end(),
                   [](const CpuSet& left, const CpuSet& right) { return left.size() > right.size(); });
  return caches[place % caches.size()];
}

/// The place of a device among those of its node, and their number.
std::pair<std::size_t, std::size_t> place_in_node(const std::vector<int>& nodes, std::size_t device) {
  const auto at = nodes.begin() + static_cast<std::ptrdiff_t>(device);
  return {static_cast<std::size_t>(std::count(nodes.begin(), at, *at)),
          static_cast<std::size_t>(std::count(nodes.begin(), nodes.end(), *at))};
}

}  // namespace

std::vector<CpuSet> cpu_blocks(const Topology& topology, const CpuSet& allowed, int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  if (ranks < 1 || allowed.size() < count) return {};
  const auto nodes = pieces_by_node(topology, allowed, count);
  return blocks_of(nodes, count);
}

std::vector<CpuSet> cpus_by_device(BindingMode mode, const Topology& topology, const CpuSet& allowed,
                                   const std::vector<int>& device_nodes) {
  std::vector<CpuSet> result;
  for (std::size_t device = 0; device < device_nodes.size(); ++device) {
    const CpuSet usable = node_cpus(topology, allowed, device_nodes[device]);
    const auto [place, count] = place_in_node(device_nodes, device);
    if (mode == BindingMode::socket) result.push_back(socket_cpus(topology, allowed, device_nodes[device]));
    if (mode == BindingMode::exclusive) result.push_back(exclusive_cpus(topology, usable, place, count));
    if (mode == BindingMode::core_complex) result.push_back(complex_cpus(topology, usable, place));
    if (mode == BindingMode::node) result.push_back(usable);
  }
  return result;
}

std::vector<int> nodes_in_turn(const Topology& topology, const CpuSet& allowed, int ranks) {
  const CpuSet nodes = nodes_of(topology, allowed);
  const std::vector<int> list(nodes.begin(), nodes.end());
  std::vector<int> result;
  for (int rank = 0; rank < ranks; ++rank)
    result.push_back(list[static_cast<std::size_t>(rank) % list.size()]);
  return result;
}

CpuSet nodes_of(const Topology& topology, const CpuSet& cpus) {
  CpuSet nodes;
  for (const int cpu : cpus) nodes.insert(described(topology, cpu).node);
  return nodes;
}

}  // namespace lockstep::launch
