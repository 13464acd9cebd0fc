#include "config/devices.hpp"

#include <fmt/format.h>

#include <limits>
#include <map>

#include "core/cpu_set.hpp"
#include "core/text.hpp"
#include "core/visible_devices.hpp"
#include "lockstep/core/error.hpp"
#include "process/affinity.hpp"
#include "process/process_facts.hpp"
#include "process/words.hpp"

namespace lockstep::launch {
namespace {

BindingMode mode_of(const RunOptions& options, int ranks, int gpus) {
  static const std::map<std::string, BindingMode> kModes{
      {"none", BindingMode::none},           {"block", BindingMode::block},
      {"node", BindingMode::node},           {"socket", BindingMode::socket},
      {"exclusive", BindingMode::exclusive}, {"core-complex", BindingMode::core_complex}};
  if (options.numa_binding) return kModes.at(*options.numa_binding);
  if (options.cpu_binding != "auto") return kModes.at(options.cpu_binding);
  // A single rank may use all CPUs anyway. A rank with a GPU needs the CPUs near it, which --numa-binding
  // selects.
  return ranks > 1 && gpus == 0 ? BindingMode::block : BindingMode::none;
}

}  // namespace

int visible_gpus(const Environment& environment, const std::string& folder) {
  const auto devices = static_cast<int>(numbered_entries(folder, "nvidia").size());
  const auto listed = visible_devices(environment, devices);
  return devices > 0 && listed ? static_cast<int>(listed->size()) : devices;
}

int ranks_per_node(const std::string& text, const Environment& environment, const std::string& folder) {
  // More processes than a host has process ids for, each with files of its own, are a mistake.
  constexpr int kMostRanks = 65536;
  if (const auto number = parse_whole_number(text, 1, kMostRanks)) return *number;
  if (text != "cpu" && text != "gpu" && text != "auto") {
    throw formatted<UsageError>(
        "--nproc-per-node '{}': expected an integer from 1 to {}, 'auto', 'cpu' or 'gpu'.", text, kMostRanks);
  }
  const int gpus = text == "cpu" ? 0 : visible_gpus(environment, folder);
  if (gpus > 0) return gpus;
  if (text != "gpu") return usable_cpus();
  throw UsageError("--nproc-per-node gpu: no GPU is visible (" + folder +
                   "/nvidia0, CUDA_VISIBLE_DEVICES). Give a number, or 'cpu'.");
}

std::string virtual_device(const Environment& environment, int local_rank) {
  const auto listed = visible_devices(environment);
  if (!listed) return fmt::to_string(local_rank);
  if (listed->size() > static_cast<std::size_t>(local_rank))
    return (*listed)[static_cast<std::size_t>(local_rank)];
  throw formatted<UsageError>(
      "--virtual-local-rank: CUDA_VISIBLE_DEVICES '{}' has no entry for rank {}. Expected one device for "
      "each rank of this node.",
      *find_variable(environment, "CUDA_VISIBLE_DEVICES"), local_rank);
}

std::vector<CpuBinding> cpu_bindings(const RunOptions& options, int ranks, const Environment& environment,
                                     const std::string& sys, const std::string& proc,
                                     const std::string& dev) {
  if (options.numa_binding && options.cpu_binding != "auto") {
    throw UsageError("--cpu-binding " + options.cpu_binding + " and --numa-binding " + *options.numa_binding +
                     " contradict each other. Drop one.");
  }
  const int gpus = visible_gpus(environment, dev);
  const BindingMode mode = mode_of(options, ranks, gpus);
  if (mode == BindingMode::none) return {};
  const Topology topology = read_topology(sys);
  const CpuSet allowed = allowed_cpus();
  std::vector<CpuSet> cpus;
  if (mode == BindingMode::block) {
    cpus = cpu_blocks(topology, allowed, ranks);
    if (cpus.empty() && options.cpu_binding == "block") {
      throw formatted<UsageError>(
          "--cpu-binding block: {} ranks, but only {} CPUs that this job may use ({}). Start fewer ranks, or "
          "use --cpu-binding none.",
          ranks, allowed.size(), cpu_list_text(allowed));
    }
  } else {
    const auto nodes = gpus > 0 ? gpu_nodes(environment, sys, proc) : nodes_in_turn(topology, allowed, ranks);
    cpus = cpus_by_device(mode, topology, allowed, nodes);
    if (std::ssize(cpus) < ranks) {
      throw formatted<UsageError>(
          "--numa-binding: {} ranks, but only {} GPUs are visible; the rank with number n uses GPU n. Start "
          "fewer ranks, or use --cpu-binding block.",
          ranks, cpus.size());
    }
    cpus.resize(static_cast<std::size_t>(ranks));
  }
  std::vector<CpuBinding> result;
  for (const auto& set : cpus) {
    result.push_back({.cpus = set});
    const CpuSet nodes = find_numa_nodes(topology, set);
    if (nodes.size() == 1 && topology.nodes().size() > 1) result.back().memory_node = *nodes.begin();
  }
  return result;
}

std::string binding_text(const CpuBinding& binding) {
  std::string text = (binding.cpus.size() == 1 ? "CPU " : "CPUs ") + cpu_list_text(binding.cpus);
  if (binding.memory_node) text += fmt::format(" (memory of NUMA node {})", *binding.memory_node);
  return text;
}

}  // namespace lockstep::launch
