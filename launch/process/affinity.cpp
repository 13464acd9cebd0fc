#include "process/affinity.hpp"

#include <fmt/core.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

using Groups = std::vector<CpuSet>;

/// The CPUs in groups that have the same `key`, in the order of the keys.
Groups grouped(const Topology& topology, const CpuSet& cpus, int Cpu::*key) {
  std::map<int, CpuSet> groups;
  for (const int cpu : cpus) groups[topology.cpu(cpu).*key].insert(cpu);
  Groups result;
  for (auto& [unused, group] : groups) result.push_back(std::move(group));
  return result;
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

/// The smallest pieces that a block consists of, by NUMA node: cores in the order in which they lie together,
/// or, where ranks outnumber the cores, single CPUs.
std::vector<Groups> pieces_by_node(const Topology& topology, const CpuSet& allowed, std::size_t ranks) {
  const bool whole_cores = grouped(topology, allowed, &Cpu::core).size() >= ranks;
  std::vector<Groups> result;
  for (const CpuSet& node : grouped(topology, allowed, &Cpu::node)) {
    Groups& pieces = result.emplace_back();
    for (const CpuSet& cache : grouped(topology, node, &Cpu::cache)) {
      for (const CpuSet& core : grouped(topology, cache, &Cpu::core)) {
        if (whole_cores) {
          pieces.push_back(core);
        } else {
          for (const int cpu : core) pieces.push_back({cpu});
        }
      }
    }
  }
  return result;
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

/// A node's CPUs for each of the ranks; with fewer ranks than nodes, whole nodes for each.
std::vector<CpuSet> blocks_of(const std::vector<Groups>& nodes, std::size_t ranks) {
  std::vector<CpuSet> result;
  if (ranks < nodes.size()) {
    Groups whole;
    for (const auto& node : nodes) whole.push_back(merged(node.begin(), node.end()));
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

/// The CPUs of all nodes of the package that these lie on.
CpuSet socket_cpus(const Topology& topology, const CpuSet& allowed, const CpuSet& usable) {
  const auto package_of = [&](const CpuSet& cpus) { return topology.cpu(*cpus.begin()).package; };
  CpuSet result;
  for (const auto& [unused, cpus] : topology.nodes) {
    CpuSet of_node = intersection(cpus, allowed);
    if (!of_node.empty() && package_of(of_node) == package_of(usable)) result.merge(of_node);
  }
  return result;
}

CpuSet exclusive_cpus(const Topology& topology, const CpuSet& usable, std::size_t place,
                      std::size_t devices) {
  const Groups cores = grouped(topology, usable, &Cpu::core);
  if (cores.size() >= devices) return dealt(cores, devices)[place];
  throw UsageError(
      fmt::format("--numa-binding exclusive: {} ranks share a NUMA node with {} cores that this job may use "
                  "({}). Start fewer "
                  "ranks, or use --numa-binding node.",
                  devices, cores.size(), cpu_list_text(usable)));
}

/// Caches with more CPUs that may be used come first.
CpuSet complex_cpus(const Topology& topology, const CpuSet& usable, std::size_t place) {
  Groups caches = grouped(topology, usable, &Cpu::cache);
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

bool has_default_policy() {
  int mode = -1;
  return syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, nullptr, 0UL) == 0 && mode == MPOL_DEFAULT;
}

/// Preferred and not bound: a full node must not end in the OOM killer.
bool prefer_memory_of(int node) {
  constexpr unsigned long kBits = 8 * sizeof(unsigned long);
  const auto number = static_cast<unsigned long>(node);
  std::vector<unsigned long> mask(number / kBits + 1, 0);
  mask[number / kBits] = 1UL << (number % kBits);
  // The kernel reads one bit less than it is told.
  return syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask.data(), mask.size() * kBits + 1) == 0;
}

}  // namespace

std::vector<CpuSet> cpu_blocks(const Topology& topology, const CpuSet& allowed, int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  if (ranks < 1 || allowed.size() < count) return {};
  return blocks_of(pieces_by_node(topology, allowed, count), count);
}

std::vector<CpuSet> cpus_by_device(BindingMode mode, const Topology& topology, const CpuSet& allowed,
                                   const std::vector<int>& device_nodes) {
  std::vector<CpuSet> result;
  for (std::size_t device = 0; device < device_nodes.size(); ++device) {
    const CpuSet usable = node_cpus(topology, allowed, device_nodes[device]);
    const auto [place, count] = place_in_node(device_nodes, device);
    if (mode == BindingMode::socket) result.push_back(socket_cpus(topology, allowed, usable));
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
  for (const int cpu : cpus) nodes.insert(topology.cpu(cpu).node);
  return nodes;
}

ScopedBinding::ScopedBinding(const CpuBinding& binding) {
  if (binding.cpus.empty()) return;
  before_ = allowed_cpus();
  if (!bind_thread_to(binding.cpus)) {
    throw Error(fmt::format(
        "cannot bind to the CPUs {}: {}. They may have been taken away from this job; --cpu-binding none "
        "starts the ranks unbound.",
        cpu_list_text(binding.cpus), std::strerror(errno)));
  }
  if (binding.memory_node && has_default_policy()) has_policy_ = prefer_memory_of(*binding.memory_node);
}

ScopedBinding::~ScopedBinding() {
  if (has_policy_) syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0UL);
  // Where the CPUs were taken away meanwhile, the launcher, which sleeps nearly always, runs on those of the
  // rank.
  if (!before_.empty()) bind_thread_to(before_);
}

}  // namespace lockstep::launch
