#include "core/process_identity.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "core/file_system.hpp"
#include "core/host_name.hpp"
#include "core/runtime/process_handle.hpp"

namespace lockstep {
namespace {

std::string pid_namespace() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string();
}

}  // namespace

ProcessIdentity this_process() {
  return {.host = host_name(),
          .boot = file_system::first_line("/proc/sys/kernel/random/boot_id"),
          .pid_namespace = pid_namespace(),
          .pid = getpid(),
          .start = process_stat(getpid()).start};
}

Liveness liveness_of(const ProcessIdentity& process) {
  const std::string boot = file_system::first_line("/proc/sys/kernel/random/boot_id");
  if (boot.empty() || boot != process.boot || pid_namespace() != process.pid_namespace)
    return Liveness::unknown;
  return has_ended(process.pid, process.start) ? Liveness::dead : Liveness::alive;
}

std::string process_text(const ProcessIdentity& process) {
  return fmt::format("host {}, pid {}", process.host, process.pid);
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
