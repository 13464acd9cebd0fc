#include "host_tree.hpp"

#include <filesystem>
#include <fstream>

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

void put(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text << '\n';
}

/// The CPUs of a run of cores: all their hardware threads.
CpuSet threads_of(const MadeUpHost& host, int first_core, int count) {
  CpuSet result;
  for (int core = first_core; core < first_core + count; ++core) {
    for (int thread = 0; thread < host.threads_per_core; ++thread)
      result.insert(core + thread * host.cores());
  }
  return result;
}

void put_cache(const fs::path& folder, const std::string& type, int level, const CpuSet& shared) {
  put(folder / "type", type);
  put(folder / "level", std::to_string(level));
  put(folder / "shared_cpu_list", cpu_list_text(shared));
}

void put_cpu(const MadeUpHost& host, const fs::path& folder, int core) {
  const int per_package = host.cores() / host.packages;
  put(folder / "topology/physical_package_id", std::to_string(core / per_package));
  const CpuSet siblings = threads_of(host, core, 1);
  put(folder / "topology/thread_siblings_list", cpu_list_text(siblings));
  put_cache(folder / "cache/index0", "Data", 1, siblings);
  // A cache of instructions that claims the highest level must not count.
  put_cache(folder / "cache/index1", "Instruction", 9, siblings);
  const int first = core / host.cores_per_cache * host.cores_per_cache;
  put_cache(folder / "cache/index3", "Unified", 3, threads_of(host, first, host.cores_per_cache));
}

void put_gpu(const fs::path& folder, std::size_t index, int node) {
  const std::string address = gpu_address(index);
  put(folder / "sys/bus/pci/devices" / address / "numa_node", std::to_string(node));
  put(folder / "proc/driver/nvidia/gpus" / address / "information",
      "Model: \t\t Made-up\nGPU UUID: \t " + gpu_uuid(index));
  put(folder / "dev" / ("nvidia" + std::to_string(index)), "");
}

}  // namespace

CpuSet MadeUpHost::all_cpus() const { return threads_of(*this, 0, cores()); }

void MadeUpHost::write(const std::string& folder) const {
  const fs::path system = fs::path(folder) / "sys/devices/system";
  for (const int cpu : all_cpus())
    put_cpu(*this, system / "cpu" / ("cpu" + std::to_string(cpu)), cpu % cores());
  const int per_node = cores() / nodes();
  for (int node = 0; node < nodes(); ++node) {
    put(system / "node" / ("node" + std::to_string(node)) / "cpulist",
        cpu_list_text(threads_of(*this, node * per_node, per_node)));
  }
  put(system / "node/possible", nodes() == 1 ? "0" : "0-" + std::to_string(nodes() - 1));
  fs::create_directories(fs::path(folder) / "dev");
  for (std::size_t i = 0; i < gpu_nodes.size(); ++i) put_gpu(folder, i, gpu_nodes[i]);
}

std::string gpu_address(std::size_t index) {
  constexpr const char* kDigits = "0123456789abcdef";
  return std::string("0000:") + kDigits[(index + 1) / 16] + kDigits[(index + 1) % 16] + ":00.0";
}

std::string gpu_uuid(std::size_t index) { return "GPU-0" + std::to_string(index) + "-made-up"; }

}  // namespace lockstep::launch
