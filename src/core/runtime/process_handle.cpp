#include "core/runtime/process_handle.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "core/file_system.hpp"
#include "core/host_name.hpp"
#include "lockstep/core/process_identity.hpp"

namespace lockstep {
namespace {

std::string pid_namespace() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string();
}

}  // namespace

ProcessStat process_stat(pid_t pid) {
  const std::string line = file_system::first_line(fmt::format("/proc/{}/stat", pid));
  // The name is in parentheses, and may contain some itself.
  std::istringstream fields(line.substr(std::min(line.rfind(')') + 1, line.size())));
  ProcessStat stat;
  std::string skipped;
  fields >> stat.state >> stat.parent;
  for (int field = 5; field < 22; ++field) fields >> skipped;
  fields >> stat.start;
  return stat;
}

bool has_ended(pid_t pid, std::uint64_t start) {
  const auto is_absent = [&] { return kill(pid, 0) != 0 && errno == ESRCH; };
  if (is_absent()) return true;
  if (start == 0) return false;
  const ProcessStat stat = process_stat(pid);
  if (stat.state == 0) return is_absent();
  return stat.state == 'Z' || stat.state == 'X' || stat.start != start;
}

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

ProcessHandle::ProcessHandle(pid_t pid)
    : pid_(pid), descriptor_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {
  if (!descriptor_) start_ = process_stat(pid).start;
}

bool ProcessHandle::has_ended() const noexcept {
  if (pid_ == 0) return false;
  if (descriptor_) {
    pollfd entry{descriptor_.get(), POLLIN, 0};
    return poll(&entry, 1, 0) > 0;
  }
  try {
    return lockstep::has_ended(pid_, start_);
  } catch (...) {
    return false;  // Out of memory; the next call may succeed.
  }
}

bool ProcessHandle::signal(int number) const noexcept {
  if (descriptor_) return syscall(SYS_pidfd_send_signal, descriptor_.get(), number, nullptr, 0) == 0;
  if (pid_ != 0 && start_ != 0 && !has_ended()) return kill(pid_, number) == 0;
  errno = ESRCH;
  return false;
}

}  // namespace lockstep
