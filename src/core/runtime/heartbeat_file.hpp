#pragma once

#include <optional>
#include <string>

#include "lockstep/core/runtime/heartbeat.hpp"

namespace lockstep {

/// A launcher's side of the heartbeats. All *Local*.

/// Creates the file of a rank, accessible to this user only. Throws lockstep::Error naming it.
void make_heartbeat_file(const std::string& path);

/// The last beat of a rank; nothing if it never beat, or if the file is missing, truncated or not a
/// heartbeat. Never fails or waits, whatever the file contains.
std::optional<HeartbeatRecord> read_heartbeat(const std::string& path);

/// The file to which a process writes its stacks on its HeartbeatRecord::stack_signal: next to its heartbeat
/// file. The text is complete if it ends with kEndOfStacks.
std::string stacks_file(const std::string& heartbeat_file);
inline constexpr const char* kEndOfStacks = "end of stacks\n";

}  // namespace lockstep
