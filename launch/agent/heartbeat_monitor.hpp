#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "agent/stack_dump.hpp"
#include "failure/hang.hpp"
#include "process/worker_group.hpp"
#include "rendezvous/messages.hpp"

namespace lockstep::launch {

/// Reads the heartbeats of one round's ranks. For the launcher's thread.
class HeartbeatMonitor {
 public:
  /// How often they are to be looked at.
  static constexpr std::chrono::milliseconds kInterval{1000};

  /// Makes the heartbeat files, in the launcher's own `folder`: a log folder may lie on a network file
  /// system. `node` is a name for messages, empty where there is one node. Throws lockstep::Error.
  HeartbeatMonitor(const std::string& folder, const Assignment& place, int ranks, std::string node);
  /// Removes them.
  ~HeartbeatMonitor();
  HeartbeatMonitor(const HeartbeatMonitor&) = delete;
  HeartbeatMonitor& operator=(const HeartbeatMonitor&) = delete;

  /// What the rank is to find in LOCKSTEP_HEARTBEAT_FILE.
  std::string file(int local_rank) const { return folder_ + "/" + std::to_string(local_rank); }

  /// The status of the ranks now, for the coordinator.
  std::vector<RankStatus> statuses(const std::vector<Worker>& workers) const;

  /// Whose stacks can be asked for.
  std::vector<StackTarget> stack_targets(const std::vector<Worker>& workers) const;

  /// The most steps that a rank has done; nothing when none has ever beaten.
  std::optional<std::uint64_t> best_step() const;

 private:
  std::string folder_;
  int ranks_;
  int first_rank_;
  std::string node_;
};

}  // namespace lockstep::launch
