#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/runtime/heartbeat.hpp"

namespace lockstep::launch {

/// One rank as its node's launcher sees it. Views of several nodes can stand in one list: times are told as
/// durations, since nodes do not share a clock.
struct RankStatus {
  int rank = 0;
  /// "pid 77", or "node1, pid 77" where there are several nodes.
  std::string place;
  /// Nothing: it never beat.
  std::optional<HeartbeatRecord> beat;
  /// The state of its process as ps shows it (ProcessStat::state); '?': not known.
  char process_state = '?';
  /// Since its last beat.
  std::chrono::milliseconds still{0};
  /// What waitpid said; nothing while it runs.
  std::optional<int> status;
};

}  // namespace lockstep::launch
