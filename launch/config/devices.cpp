#include "config/devices.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "core/cpu_set.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

std::optional<int> whole_number(std::string_view text) {
  int number = 0;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

int gpu_files(const std::string& folder) {
  int count = 0;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failure)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("nvidia") && whole_number(std::string_view(name).substr(6)).value_or(-1) >= 0)
      ++count;
  }
  return count;
}

/// Whether CUDA would take the entry for a device: a number below `devices`, or the name of a GPU or a slice
/// of one.
bool names_device(std::string_view entry, int devices) {
  if (entry.starts_with("GPU-") || entry.starts_with("MIG-")) return true;
  const int number = whole_number(entry).value_or(-1);
  return number >= 0 && number < devices;
}

int listed_devices(std::string_view list, int devices) {
  int count = 0;
  while (!list.empty()) {
    const auto comma = std::min(list.find(','), list.size());
    if (!names_device(list.substr(0, comma), devices)) break;
    ++count;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return count;
}

}  // namespace

int usable_cpus() { return static_cast<int>(allowed_cpus().size()); }

int visible_gpus(const Environment& environment, const std::string& folder) {
  const int devices = gpu_files(folder);
  const auto visible = find_variable(environment, "CUDA_VISIBLE_DEVICES");
  return devices > 0 && visible ? listed_devices(*visible, devices) : devices;
}

int ranks_per_node(const std::string& text, const Environment& environment, const std::string& folder) {
  if (text == "cpu") return usable_cpus();
  const int gpus = visible_gpus(environment, folder);
  if (text == "auto") return gpus > 0 ? gpus : usable_cpus();
  if (text == "gpu" && gpus > 0) return gpus;
  if (text == "gpu") {
    throw UsageError("--nproc-per-node gpu: no GPU is visible (" + folder +
                     "/nvidia0, CUDA_VISIBLE_DEVICES). Give a number, or 'cpu'.");
  }
  const auto number = whole_number(text);
  if (number && *number >= 1) return *number;
  throw UsageError("--nproc-per-node '" + text +
                   "': expected a whole number of at least 1, 'auto', 'cpu' or 'gpu'.");
}

std::string virtual_device(const Environment& environment, int local_rank) {
  const auto visible = find_variable(environment, "CUDA_VISIBLE_DEVICES");
  if (!visible) return std::to_string(local_rank);
  std::string_view rest = *visible;
  for (int rank = 0; rank < local_rank; ++rank) {
    const auto comma = rest.find(',');
    if (comma == std::string_view::npos) {
      throw UsageError(
          fmt::format("--virtual-local-rank: CUDA_VISIBLE_DEVICES '{}' has no entry for rank {}. "
                      "Expected one device for each rank of this node.",
                      *visible, local_rank));
    }
    rest.remove_prefix(comma + 1);
  }
  std::string device(rest.substr(0, rest.find(',')));
  std::erase(device, ' ');
  return device;
}

}  // namespace lockstep::launch
