#include "core/visible_devices.hpp"

#include <string_view>

#include "core/text.hpp"

namespace lockstep {

std::optional<std::vector<std::string>> visible_devices(const Environment& environment, int gpus) {
  const auto list = find_variable(environment, "CUDA_VISIBLE_DEVICES");
  if (!list) return std::nullopt;
  std::vector<std::string> devices;
  for (const auto item : split_at_commas(*list)) {
    const std::string_view entry = trim_blanks(item);
    const bool is_name = entry.starts_with("GPU-") || entry.starts_with("MIG-");
    if (!is_name && !parse_whole_number(entry, 0, gpus - 1)) break;
    devices.emplace_back(entry);
  }
  return devices;
}

}  // namespace lockstep
