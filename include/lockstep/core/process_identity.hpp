#pragma once

#include <sys/types.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

/// Which process of which machine: enough for a process that shares no more than a folder with it to tell
/// whether it still lives.
struct ProcessIdentity {
  /// What the host calls itself.
  std::string host;
  /// The kernel's random name of this boot, and the namespace in which `pid` counts: a number means nothing
  /// in another container, and is given anew after a reboot.
  std::string boot;
  std::string pid_namespace;
  pid_t pid = 0;
  /// When it started, in clock ticks since the boot: a number that is given again has another one.
  std::uint64_t start = 0;

  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

/// This process. Reads files in /proc; what they do not tell stays empty. *Local*.
ProcessIdentity this_process();

/// `unknown`: it counts where this process cannot see, on another machine or in another container.
enum class Liveness { alive, dead, unknown };

/// A zombie is dead. *Local*.
Liveness liveness_of(const ProcessIdentity& process);

/// "host node1, pid 4711".
std::string process_text(const ProcessIdentity& process);

/// As an object with the fields' names, and back. from_json throws nlohmann's exceptions.
void to_json(nlohmann::json& json, const ProcessIdentity& process);
void from_json(const nlohmann::json& json, ProcessIdentity& process);

}  // namespace lockstep
