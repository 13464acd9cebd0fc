#include "process/gpu_nodes.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>

#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

struct Gpu {
  /// As sysfs spells it: "0000:dc:00.0".
  std::string address;
  /// "GPU-...", where the driver tells it.
  std::string uuid;
};

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> result;
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(folder, failure)) result.push_back(entry.path());
  std::sort(result.begin(), result.end());
  return result;
}

std::string lower(std::string text) {
  for (char& letter : text) {
    if (letter >= 'A' && letter <= 'F') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return text;
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
  for (const auto& path : entries(fs::path(proc) / "driver/nvidia/gpus")) {
    gpus.push_back({lower(path.filename()), uuid_in(path / "information")});
  }
  if (!gpus.empty()) return gpus;
  for (const auto& path : entries(fs::path(sys) / "bus/pci/devices")) {
    if (is_nvidia_display(path)) gpus.push_back({path.filename(), ""});
  }
  return gpus;
}

/// The GPU that an entry of CUDA_VISIBLE_DEVICES names: a number, or a UUID, which may be cut short.
std::optional<Gpu> named(const std::string& entry, const std::vector<Gpu>& gpus) {
  if (entry.starts_with("MIG-")) {
    throw UsageError("--numa-binding: CUDA_VISIBLE_DEVICES names a slice of a GPU ('" + entry +
                     "'), whose place only the driver's library knows. Use --cpu-binding block.");
  }
  std::size_t index = 0;
  const auto [stop, failure] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
  const bool numbered = failure == std::errc() && stop == entry.data() + entry.size();
  if (numbered && index < gpus.size()) return gpus[index];
  const auto found = std::find_if(gpus.begin(), gpus.end(), [&](const Gpu& gpu) {
    return entry.starts_with("GPU-") && gpu.uuid.starts_with(entry);
  });
  return numbered || found == gpus.end() ? std::nullopt : std::optional<Gpu>(*found);
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
  const std::string text = first_line(path);
  int node = 0;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), node);
  if (failure == std::errc()) return std::max(node, 0);
  throw UsageError("--numa-binding: the NUMA node of the GPU at " + gpu.address +
                   " is not known: expected a number in " + path.string() +
                   ". A container may hide it; use --cpu-binding block.");
}

}  // namespace

std::vector<int> gpu_nodes(const Environment& environment, const std::string& sys, const std::string& proc) {
  std::vector<Gpu> gpus = all_gpus(sys, proc);
  if (gpus.empty()) {
    throw UsageError("--numa-binding: GPUs are visible, but neither " + proc + "/driver/nvidia/gpus nor " +
                     sys + "/bus/pci/devices says where they are. Use --cpu-binding block.");
  }
  const auto list = find_variable(environment, "CUDA_VISIBLE_DEVICES");
  if (list) gpus = visible(*list, gpus);
  std::vector<int> result;
  for (const auto& gpu : gpus) result.push_back(node_of(gpu, sys));
  return result;
}

}  // namespace lockstep::launch
