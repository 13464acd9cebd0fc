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

/// Reads the heartbeats of one round's ranks, about once a second. For the launcher's thread.
class HeartbeatMonitor {
 public:
  using Clock = std::chrono::steady_clock;

  /// Makes the heartbeat files, in the launcher's own `folder`: a log folder may lie on a network file
  /// system. `node` is a name for messages, empty where there is one node. Throws lockstep::Error.
  HeartbeatMonitor(const std::string& folder, const Assignment& place, int ranks, const std::string& node);
  /// Removes them.
  ~HeartbeatMonitor();
  HeartbeatMonitor(const HeartbeatMonitor&) = delete;
  HeartbeatMonitor& operator=(const HeartbeatMonitor&) = delete;

  const std::string& file(int local_rank) const { return files_[static_cast<std::size_t>(local_rank)]; }
  /// Names the file to the rank.
  void add_to(Environment& environment, int local_rank) const;

  /// When to look next.
  Clock::time_point next_look() const noexcept { return next_look_; }

  /// The status of the ranks now, for the coordinator.
  std::vector<RankStatus> look(const std::vector<Worker>& workers);
  /// The same between two looks.
  std::vector<RankStatus> statuses(const std::vector<Worker>& workers) const;

  /// Whose stacks can be asked for.
  std::vector<StackTarget> stack_targets(const std::vector<Worker>& workers) const;

  /// The most steps that a rank has done; nothing when none has ever beaten.
  std::optional<std::uint64_t> best_step() const;

 private:
  std::vector<std::string> files_;
  int first_rank_;
  std::string node_;
  Clock::time_point next_look_;
};

}  // namespace lockstep::launch
