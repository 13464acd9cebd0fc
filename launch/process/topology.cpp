#include "process/topology.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <optional>

#include "core/variables.hpp"
#include "lockstep/core/error.hpp"
#include "process/process_facts.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;
using variables::whole_number;

/// The lowest CPU of a list; `cpu` itself where the list is missing.
int lowest(const fs::path& list, int cpu) {
  const CpuSet cpus = parse_cpu_list(first_line(list));
  return cpus.empty() ? cpu : *cpus.begin();
}

/// Of the caches that hold data, the one of the highest level.
int cache_of(const fs::path& folder, int cpu) {
  int highest = -1;
  int result = cpu;
  for (const auto& [index, path] : numbered_entries(folder / "cache", "index")) {
    const std::string type = first_line(path / "type");
    const int level = whole_number(first_line(path / "level")).value_or(-1);
    if ((type != "Unified" && type != "Data") || level <= highest) continue;
    highest = level;
    result = lowest(path / "shared_cpu_list", cpu);
  }
  return result;
}

Cpu read_cpu(const fs::path& folder, int cpu) {
  Cpu result;
  result.package = whole_number(first_line(folder / "topology/physical_package_id"), INT_MIN).value_or(0);
  result.core = lowest(folder / "topology/thread_siblings_list", cpu);
  result.cache = cache_of(folder, cpu);
  return result;
}

struct Gpu {
  /// As sysfs spells it: "0000:dc:00.0".
  std::string address;
  /// "GPU-...", where the driver tells it.
  std::string uuid;
};

/// The entries of a folder of devices, in the order of their addresses.
std::vector<fs::path> devices_in(const fs::path& folder) {
  std::vector<fs::path> result;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure)) result.push_back(entry.path());
  std::sort(result.begin(), result.end());
  return result;
}

/// The line "GPU UUID: GPU-..." of the driver's information file.
std::string uuid_in(const fs::path& information) {
  std::ifstream file(information);
  for (std::string line; std::getline(file, line);) {
    const auto at = line.find("GPU-");
    if (line.starts_with("GPU UUID") && at != std::string::npos) return line.substr(at);
  }
  return "";
}

bool is_nvidia_display(const fs::path& device) {
  constexpr const char* kNvidia = "0x10de";
  return first_line(device / "vendor") == kNvidia && first_line(device / "class").starts_with("0x03");
}

std::vector<Gpu> all_gpus(const std::string& sys, const std::string& proc) {
  std::vector<Gpu> gpus;
  for (const auto& path : devices_in(fs::path(proc) / "driver/nvidia/gpus")) {
    std::string address = path.filename();
    std::transform(address.begin(), address.end(), address.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    gpus.push_back({address, uuid_in(path / "information")});
  }
  if (!gpus.empty()) return gpus;
  for (const auto& path : devices_in(fs::path(sys) / "bus/pci/devices")) {
    if (is_nvidia_display(path)) gpus.push_back({path.filename(), ""});
  }
  return gpus;
}

/// The GPU that an entry of CUDA_VISIBLE_DEVICES names: a number, or a UUID, which may be cut short.
std::optional<Gpu> named(const std::string& entry, const std::vector<Gpu>& gpus) {
  if (entry.starts_with("MIG-")) {
    throw UsageError(fmt::format(
        "--numa-binding: CUDA_VISIBLE_DEVICES names a slice of a GPU ('{}'), whose place only the "
        "driver's library knows. Use --cpu-binding block.",
        entry));
  }
  const auto index = whole_number(entry);
  if (index && static_cast<std::size_t>(*index) < gpus.size()) return gpus[static_cast<std::size_t>(*index)];
  if (!entry.starts_with("GPU-")) return std::nullopt;
  const auto found =
      std::find_if(gpus.begin(), gpus.end(), [&](const Gpu& gpu) { return gpu.uuid.starts_with(entry); });
  return found == gpus.end() ? std::nullopt : std::optional<Gpu>(*found);
}

/// As CUDA does it: the list ends at its first entry that names no device.
std::vector<Gpu> visible(const std::string& list, const std::vector<Gpu>& gpus) {
  std::vector<Gpu> result;
  for (std::size_t at = 0; at < list.size();) {
    const auto comma = std::min(list.find(',', at), list.size());
    const auto gpu = named(list.substr(at, comma - at), gpus);
    if (!gpu) break;
    result.push_back(*gpu);
    at = comma + 1;
  }
  return result;
}

int node_of(const Gpu& gpu, const std::string& sys) {
  const fs::path path = fs::path(sys) / "bus/pci/devices" / gpu.address / "numa_node";
  if (const auto node = whole_number(first_line(path), INT_MIN)) return std::max(*node, 0);
  throw UsageError(
      fmt::format("--numa-binding: the NUMA node of the GPU at {} is not known: expected a number in {}. A "
                  "container may hide it; use --cpu-binding block.",
                  gpu.address, path.string()));
}

}  // namespace

Cpu Topology::cpu(int number) const {
  const auto found = cpus.find(number);
  return found == cpus.end() ? Cpu{.cache = number, .core = number} : found->second;
}

CpuSet Topology::cpus_of(int node) const {
  const auto found = nodes.find(node);
  return found == nodes.end() ? CpuSet{} : found->second;
}

Topology read_topology(const std::string& root) {
  const fs::path system = fs::path(root) / "devices/system";
  Topology topology;
  for (const auto& [cpu, path] : numbered_entries(system / "cpu", "cpu"))
    topology.cpus[cpu] = read_cpu(path, cpu);
  for (const auto& [node, path] : numbered_entries(system / "node", "node")) {
    const CpuSet cpus = parse_cpu_list(first_line(path / "cpulist"));
    if (cpus.empty()) continue;
    topology.nodes[node] = cpus;
    for (const int cpu : cpus) {
      if (const auto found = topology.cpus.find(cpu); found != topology.cpus.end()) found->second.node = node;
    }
  }
  if (topology.nodes.empty()) {
    for (const auto& [cpu, unused] : topology.cpus) topology.nodes[0].insert(cpu);
  }
  return topology;
}

std::vector<int> gpu_nodes(const Environment& environment, const std::string& sys, const std::string& proc) {
  std::vector<Gpu> gpus = all_gpus(sys, proc);
  if (gpus.empty()) {
    throw UsageError(fmt::format(
        "--numa-binding: GPUs are visible, but neither {}/driver/nvidia/gpus nor {}/bus/pci/devices "
        "says where they are. Use --cpu-binding block.",
        proc, sys));
  }
  const auto list = find_variable(environment, "CUDA_VISIBLE_DEVICES");
  if (list) gpus = visible(*list, gpus);
  std::vector<int> result;
  for (const auto& gpu : gpus) result.push_back(node_of(gpu, sys));
  return result;
}

}  // namespace lockstep::launch
