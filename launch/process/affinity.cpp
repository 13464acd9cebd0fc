#include "process/affinity.hpp"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <functional>

#include "core/text.hpp"
#include "core/visible_devices.hpp"
#include "lockstep/core/error.hpp"
#include "process/process_facts.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
/// The CPUs that share the highest-level cache that holds data.
CpuSet cache_of(const fs::path& folder) {
  int highest = -1;
  fs::path cache;
  for (const auto& [index, path] : numbered_entries(folder / "cache", "index")) {
    const std::string type = first_line(path / "type");
    const int level = parse_whole_number(first_line(path / "level")).value_or(-1);
    if ((type != "Unified" && type != "Data") || level <= highest) continue;
    highest = level;
    cache = path;
  }
  return highest < 0 ? CpuSet{} : parse_cpu_list(first_line(cache / "shared_cpu_list"));
}

/// Groups of CPUs, each read once for all of its members: a host may have hundreds of CPUs.
class CpuGroups {
 public:
  /// The lowest CPU of the group of `cpu`, which `read` returns; `cpu` itself if that is empty.
  template <class Read>
  int lowest(int cpu, const Read& read) {
    if (const auto known = lowest_.find(cpu); known != lowest_.end()) return known->second;
    const CpuSet group = read();
    const int lowest = group.empty() ? cpu : *group.begin();
    for (const int member : group) lowest_.emplace(member, lowest);
    return lowest;
  }

 private:
  std::map<int, int> lowest_;
};

struct Gpu {
  /// As in sysfs: "0000:dc:00.0".
  std::string address;
  /// "GPU-...", if the driver reports it.
  std::string uuid;
};

std::vector<Gpu> all_gpus(const std::string& sys, const std::string& proc) {
  std::vector<Gpu> gpus;
  for (const auto& path : entries_in(fs::path(proc) / "driver/nvidia/gpus")) {
    std::string address = path.filename();
    address = to_lower_case(address);
    gpus.push_back({address, value_in(path / "information", "GPU UUID")});
  }
  if (!gpus.empty()) return gpus;
  constexpr const char* kNvidia = "0x10de";
  constexpr const char* kDisplay = "0x03";
  for (const auto& path : entries_in(fs::path(sys) / "bus/pci/devices")) {
    if (first_line(path / "vendor") == kNvidia && first_line(path / "class").starts_with(kDisplay))
      gpus.push_back({path.filename(), ""});
  }
  return gpus;
}

/// The GPU of an entry of visible_devices: a number, or a UUID, which may be abbreviated; null: none.
const Gpu* named(const std::string& entry, const std::vector<Gpu>& gpus) {
  if (entry.starts_with("MIG-")) {
    throw formatted<UsageError>(
        "--numa-binding: CUDA_VISIBLE_DEVICES names a slice of a GPU ('{}'), whose location only the "
        "driver's "
        "library knows. Use --cpu-binding block.",
        entry);
  }
  if (const auto index = parse_whole_number(entry)) return &gpus[static_cast<std::size_t>(*index)];
  const auto found = std::ranges::find_if(gpus, [&](const Gpu& gpu) { return gpu.uuid.starts_with(entry); });
  return found == gpus.end() ? nullptr : &*found;
}

int node_of(const Gpu& gpu, const std::string& sys) {
  const fs::path path = fs::path(sys) / "bus/pci/devices" / gpu.address / "numa_node";
  if (const auto node = parse_whole_number(first_line(path), INT_MIN)) return std::max(*node, 0);
  throw formatted<UsageError>(
      "--numa-binding: the NUMA node of the GPU at {} is not known: expected a number in {}. A container may "
      "hide it; use --cpu-binding block.",
      gpu.address, path.string());
}

using Groups = std::vector<CpuSet>;

/// The CPUs grouped by `key`, in the order of the keys.
Groups grouped(const Topology& topology, const CpuSet& cpus, int Cpu::*key) {
  std::map<int, CpuSet> groups;
  for (const int cpu : cpus) groups[topology.cpu(cpu).*key].insert(cpu);
  Groups result;
  for (auto& [unused, group] : groups) result.push_back(std::move(group));
  return result;
}

/// Distributes the groups over `parts` contiguous runs; if they do not divide evenly, the first runs have one
/// group more.
Groups deal_cores(const Groups& groups, std::size_t parts) {
  Groups result(parts);
  const std::size_t each = groups.size() / parts;
  const std::size_t rest = groups.size() % parts;
  auto next = groups.begin();
  for (std::size_t part = 0; part < parts; ++part) {
    for (std::size_t count = each + (part < rest ? 1 : 0); count > 0; --count, ++next)
      result[part].insert(next->begin(), next->end());
  }
  return result;
}

/// The smallest units of a block, per NUMA node: cores, adjacent ones together, or single CPUs if ranks
/// outnumber the cores.
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

/// Number of ranks per node: proportional to its units as far as possible, and never more than its units.
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

CpuSet node_cpus(const Topology& topology, const CpuSet& allowed, int node) {
  CpuSet cpus = allowed;
  std::erase_if(cpus, [&](int cpu) { return topology.cpu(cpu).node != node; });
  if (!cpus.empty()) return cpus;
  throw formatted<UsageError>(
      "NUMA node {} of a rank's device has none of the CPUs that this job may use ({}): widen the job's "
      "CPUs, or use --cpu-binding none.",
      node, cpu_list_text(allowed));
}

/// The allowed CPUs of the package that has the usable ones.
CpuSet socket_cpus(const Topology& topology, const CpuSet& allowed, const CpuSet& usable) {
  const int package = topology.cpu(*usable.begin()).package;
  CpuSet cpus = allowed;
  std::erase_if(cpus, [&](int cpu) { return topology.cpu(cpu).package != package; });
  return cpus;
}

CpuSet exclusive_cpus(const Topology& topology, const CpuSet& usable, std::size_t index,
                      std::size_t devices) {
  const Groups cores = grouped(topology, usable, &Cpu::core);
  if (cores.size() >= devices) return deal_cores(cores, devices)[index];
  throw formatted<UsageError>(
      "--numa-binding exclusive: {} ranks share a NUMA node with {} cores that this job may use ({}). Start "
      "fewer ranks, or use --numa-binding node.",
      devices, cores.size(), cpu_list_text(usable));
}

/// Caches with more usable CPUs come first.
CpuSet complex_cpus(const Topology& topology, const CpuSet& usable, std::size_t index) {
  Groups caches = grouped(topology, usable, &Cpu::cache);
  std::ranges::stable_sort(caches, std::greater(), std::ranges::size);
  return caches[index % caches.size()];
}

bool has_default_policy() {
  int mode = -1;
  return syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, nullptr, 0UL) == 0 && mode == MPOL_DEFAULT;
}

/// Preferred, not bound: a full node must not end in the OOM killer.
bool prefer_memory_of(int node) {
  constexpr unsigned long kBits = 8 * sizeof(unsigned long);
  const auto number = static_cast<unsigned long>(node);
  std::vector<unsigned long> mask(number / kBits + 1, 0);
  mask[number / kBits] = 1UL << (number % kBits);
  // The kernel reads one bit less than this number.
  return syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask.data(), mask.size() * kBits + 1) == 0;
}

}  // namespace

Cpu Topology::cpu(int number) const {
  const auto found = cpus.find(number);
  return found == cpus.end() ? Cpu{.cache = number, .core = number} : found->second;
}

CpuSet Topology::nodes() const {
  CpuSet nodes;
  for (const auto& [number, cpu] : cpus) nodes.insert(cpu.node);
  return nodes;
}

Topology read_topology(const std::string& root) {
  const fs::path system = fs::path(root) / "devices/system";
  Topology topology;
  CpuGroups cores, caches;
  for (const auto& entry : numbered_entries(system / "cpu", "cpu")) {
    const auto& [cpu, path] = entry;
    const fs::path core = path / "topology";
    topology.cpus[cpu] = {
        .package = parse_whole_number(first_line(core / "physical_package_id"), INT_MIN).value_or(0),
        .cache = caches.lowest(cpu, [&path = path] { return cache_of(path); }),
        .core = cores.lowest(cpu, [&] { return parse_cpu_list(first_line(core / "thread_siblings_list")); })};
  }
  for (const auto& [node, path] : numbered_entries(system / "node", "node")) {
    for (const int cpu : parse_cpu_list(first_line(path / "cpulist"))) {
      if (const auto found = topology.cpus.find(cpu); found != topology.cpus.end()) found->second.node = node;
    }
  }
  return topology;
}

std::vector<int> gpu_nodes(const Environment& environment, const std::string& sys, const std::string& proc) {
  const std::vector<Gpu> gpus = all_gpus(sys, proc);
  if (gpus.empty()) {
    throw formatted<UsageError>(
        "--numa-binding: GPUs are visible, but neither {}/driver/nvidia/gpus nor {}/bus/pci/devices says "
        "where they are. Use --cpu-binding block.",
        proc, sys);
  }
  const auto listed = visible_devices(environment, static_cast<int>(gpus.size()));
  std::vector<int> result;
  if (!listed) {
    for (const auto& gpu : gpus) result.push_back(node_of(gpu, sys));
    return result;
  }
  for (const auto& entry : *listed) {
    const Gpu* gpu = named(entry, gpus);
    if (gpu == nullptr) break;
    result.push_back(node_of(*gpu, sys));
  }
  return result;
}

std::vector<CpuSet> cpu_blocks(const Topology& topology, const CpuSet& allowed, int ranks) {
  const auto count = static_cast<std::size_t>(ranks);
  if (ranks < 1 || allowed.size() < count) return {};
  const auto nodes = pieces_by_node(topology, allowed, count);
  // With fewer ranks than nodes, each rank gets whole nodes.
  if (count < nodes.size()) return deal_cores(grouped(topology, allowed, &Cpu::node), count);
  const auto shares = ranks_by_node(nodes, count);
  std::vector<CpuSet> result;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    std::ranges::move(deal_cores(nodes[i], shares[i]), std::back_inserter(result));
  return result;
}

std::vector<CpuSet> cpus_by_device(BindingMode mode, const Topology& topology, const CpuSet& allowed,
                                   const std::vector<int>& device_nodes) {
  std::vector<CpuSet> result;
  std::map<int, std::size_t> seen;
  for (const int node : device_nodes) {
    const CpuSet usable = node_cpus(topology, allowed, node);
    // Index among the devices of its node.
    const std::size_t index = seen[node]++;
    const auto count = static_cast<std::size_t>(std::ranges::count(device_nodes, node));
    if (mode == BindingMode::socket) result.push_back(socket_cpus(topology, allowed, usable));
    if (mode == BindingMode::exclusive) result.push_back(exclusive_cpus(topology, usable, index, count));
    if (mode == BindingMode::core_complex) result.push_back(complex_cpus(topology, usable, index));
    if (mode == BindingMode::node) result.push_back(usable);
  }
  return result;
}

std::vector<int> nodes_in_turn(const Topology& topology, const CpuSet& allowed, int ranks) {
  const CpuSet nodes = find_numa_nodes(topology, allowed);
  const std::vector<int> list(nodes.begin(), nodes.end());
  std::vector<int> result;
  for (int rank = 0; rank < ranks; ++rank)
    result.push_back(list[static_cast<std::size_t>(rank) % list.size()]);
  return result;
}

CpuSet find_numa_nodes(const Topology& topology, const CpuSet& cpus) {
  CpuSet nodes;
  for (const int cpu : cpus) nodes.insert(topology.cpu(cpu).node);
  return nodes;
}

ScopedBinding::ScopedBinding(const CpuBinding& binding) {
  if (binding.cpus.empty()) return;
  before_ = allowed_cpus();
  if (!bind_thread_to(binding.cpus)) {
    throw formatted<Error>(
        "cannot bind to the CPUs {}: {}. They may have been taken away from this job; --cpu-binding none "
        "starts the ranks unbound.",
        cpu_list_text(binding.cpus), std::strerror(errno));
  }
  if (binding.memory_node && has_default_policy()) has_policy_ = prefer_memory_of(*binding.memory_node);
}

ScopedBinding::~ScopedBinding() {
  if (has_policy_) syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0UL);
  // If this fails because the CPUs were withdrawn meanwhile, the launcher, which mostly sleeps, shares the
  // rank's CPUs.
  if (!before_.empty()) bind_thread_to(before_);
}

}  // namespace lockstep::launch
