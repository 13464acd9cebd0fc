#include "process/memory_events.hpp"

#include <fstream>

#include "core/cpu_set.hpp"

namespace lockstep::launch {
namespace {

/// The number behind "oom_kill" in a file of "name number" lines.
std::optional<std::int64_t> count_in(const std::string& path) {
  std::ifstream file(path);
  std::string name;
  for (std::int64_t number = 0; file >> name >> number;) {
    if (name == "oom_kill") return number;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> oom_kills(const std::string& membership, const std::string& mount) {
  for (const auto& cgroup : read_cgroups(membership)) {
    std::optional<std::int64_t> count;
    if (cgroup.has("memory")) count = count_in(mount + "/memory" + cgroup.path + "/memory.oom_control");
    if (cgroup.is_v2()) count = count_in(mount + cgroup.path + "/memory.events");
    if (count) return count;
  }
  return std::nullopt;
}

}  // namespace lockstep::launch
