#include "process/memory_events.hpp"

#include <fstream>
#include <sstream>

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

/// Whether "memory" is among the names of "cpu,memory".
bool names_memory(const std::string& controllers) {
  return ("," + controllers + ",").find(",memory,") != std::string::npos;
}

}  // namespace

std::optional<std::int64_t> oom_kills(const std::string& membership, const std::string& mount) {
  std::ifstream file(membership);
  // A line is "number:controllers:path"; v2 has no controllers there.
  for (std::string line; std::getline(file, line);) {
    std::istringstream parts(line);
    std::string number, controllers, path;
    std::getline(parts, number, ':');
    std::getline(parts, controllers, ':');
    std::getline(parts, path);
    std::optional<std::int64_t> count;
    if (names_memory(controllers)) count = count_in(mount + "/memory" + path + "/memory.oom_control");
    if (controllers.empty()) count = count_in(mount + path + "/memory.events");
    if (count) return count;
  }
  return std::nullopt;
}

}  // namespace lockstep::launch
