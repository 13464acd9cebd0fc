#include "lockstep/core/process_identity.hpp"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/host_name.hpp"

namespace lockstep {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// What /proc/<pid>/stat says: its state, and its start in clock ticks (field 22). proc(5).
struct Stat {
  char state = 0;
  std::uint64_t start = 0;
};

Stat stat_of(pid_t pid) {
  const std::string line = first_line("/proc/" + std::to_string(pid) + "/stat");
  // The name stands in brackets, and may hold some itself.
  std::istringstream fields(line.substr(std::min(line.rfind(')') + 1, line.size())));
  Stat stat;
  std::string skipped;
  fields >> stat.state;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> stat.start;
  return stat;
}

std::string pid_namespace() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string();
}

}  // namespace

ProcessIdentity this_process() {
  return {.host = host_name(),
          .boot = first_line("/proc/sys/kernel/random/boot_id"),
          .pid_namespace = pid_namespace(),
          .pid = getpid(),
          .start = stat_of(getpid()).start};
}

Liveness liveness_of(const ProcessIdentity& process) {
  const std::string boot = first_line("/proc/sys/kernel/random/boot_id");
  if (boot.empty() || boot != process.boot || pid_namespace() != process.pid_namespace)
    return Liveness::unknown;
  if (kill(process.pid, 0) < 0 && errno == ESRCH) return Liveness::dead;
  const Stat stat = stat_of(process.pid);
  const bool gone = stat.state == 'Z' || stat.state == 'X' || stat.start != process.start;
  return gone ? Liveness::dead : Liveness::alive;
}

std::string process_text(const ProcessIdentity& process) {
  return "host " + process.host + ", pid " + std::to_string(process.pid);
}

void to_json(nlohmann::json& json, const ProcessIdentity& process) {
  json = {{"host", process.host},
          {"boot", process.boot},
          {"pid_namespace", process.pid_namespace},
          {"pid", process.pid},
          {"start", process.start}};
}

void from_json(const nlohmann::json& json, ProcessIdentity& process) {
  json.at("host").get_to(process.host);
  json.at("boot").get_to(process.boot);
  json.at("pid_namespace").get_to(process.pid_namespace);
  json.at("pid").get_to(process.pid);
  json.at("start").get_to(process.start);
}

}  // namespace lockstep
