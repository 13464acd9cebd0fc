#pragma once

#include <sys/types.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

/// Identifies a process across machines, so that a process that shares only a folder with it can tell whether
/// it is alive.
struct ProcessIdentity {
  /// The host name.
  std::string host;
  /// The kernel's boot id, and the pid namespace of `pid`: a pid means nothing in another container, and is
  /// reused after a reboot.
  std::string boot;
  std::string pid_namespace;
  pid_t pid = 0;
  /// Start time in clock ticks since the boot; distinguishes processes that had the same pid.
  std::uint64_t start = 0;

  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

/// This process. Reads files in /proc; fields that they do not provide stay empty. *Local*.
ProcessIdentity this_process();

/// `unknown`: the process is on another machine or in another container.
enum class Liveness { alive, dead, unknown };

/// A zombie is dead. *Local*.
Liveness liveness_of(const ProcessIdentity& process);

/// "host node1, pid 4711".
std::string process_text(const ProcessIdentity& process);

/// As an object with the fields' names. from_json throws nlohmann's exceptions.
void to_json(nlohmann::json& json, const ProcessIdentity& process);
void from_json(const nlohmann::json& json, ProcessIdentity& process);

}  // namespace lockstep
