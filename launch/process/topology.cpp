#include "process/topology.hpp"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return value;
}

/// The numbers n of the entries `<prefix>n` of a folder, with their paths, in the order of n.
std::map<int, fs::path> numbered(const fs::path& folder, std::string_view prefix) {
  std::map<int, fs::path> result;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(prefix)) continue;
    const auto index = number(std::string_view(name).substr(prefix.size()));
    if (index && *index >= 0) result[*index] = entry.path();
  }
  return result;
}

/// The lowest CPU of a list; `cpu` itself where the list is missing.
int lowest(const fs::path& list, int cpu) {
  const CpuSet cpus = parse_cpu_list(first_line(list));
  return cpus.empty() ? cpu : *cpus.begin();
}

/// Of the caches that hold data, the one of the highest level.
int cache_of(const fs::path& folder, int cpu) {
  int highest = -1;
  int result = cpu;
  for (const auto& [index, path] : numbered(folder / "cache", "index")) {
    const std::string type = first_line(path / "type");
    const int level = number(first_line(path / "level")).value_or(-1);
    if ((type != "Unified" && type != "Data") || level <= highest) continue;
    highest = level;
    result = lowest(path / "shared_cpu_list", cpu);
  }
  return result;
}

Cpu read_cpu(const fs::path& folder, int cpu) {
  Cpu result;
  result.package = number(first_line(folder / "topology/physical_package_id")).value_or(0);
  result.core = lowest(folder / "topology/thread_siblings_list", cpu);
  result.cache = cache_of(folder, cpu);
  return result;
}

}  // namespace

CpuSet Topology::cpus_of(int node) const {
  const auto found = nodes.find(node);
  return found == nodes.end() ? CpuSet{} : found->second;
}

Topology read_topology(const std::string& root) {
  const fs::path system = fs::path(root) / "devices/system";
  Topology topology;
  for (const auto& [cpu, path] : numbered(system / "cpu", "cpu")) topology.cpus[cpu] = read_cpu(path, cpu);
  for (const auto& [node, path] : numbered(system / "node", "node")) {
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

}  // namespace lockstep::launch
