#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "agent/stack_dump.hpp"
#include "failure/hang.hpp"
#include "process/worker_process.hpp"
#include "rendezvous/messages.hpp"

namespace lockstep::launch {

/// Reads the heartbeats of one round's ranks. For the launcher's thread.
class HeartbeatMonitor {
 public:
  /// How often to read them.
  static constexpr std::chrono::milliseconds kInterval{1000};

  /// Creates the heartbeat files in the launcher's own `folder`, as a log folder may be on a network file
  /// system. `node` is a name for messages, empty if there is one node. Throws lockstep::Error.
  HeartbeatMonitor(const std::string& folder, const Assignment& assignment, int ranks, std::string node);
  /// Removes them.
  ~HeartbeatMonitor();
  HeartbeatMonitor(const HeartbeatMonitor&) = delete;
  HeartbeatMonitor& operator=(const HeartbeatMonitor&) = delete;

  /// The value of LOCKSTEP_HEARTBEAT_FILE for the rank.
  const std::string& file(int local_rank) const { return files_[static_cast<std::size_t>(local_rank)]; }
  /// That of a spare, which is not read until the spare takes its rank's place.
  std::string file_of_spare(int local_rank, int process) const {
    return folder_ + "/" + std::to_string(local_rank) + "." + std::to_string(process);
  }

  /// Before another process of the rank is started: the beats of the one before are not its own. Throws
  /// lockstep::Error.
  void renew_file(int local_rank) const;
  /// The spare has taken its rank's place.
  void use_file_of_spare(int local_rank, int process);
  /// The spare has ended.
  void remove_file_of_spare(int local_rank, int process) const;

  /// The current status of the ranks, for the coordinator.
  std::vector<RankStatus> statuses(const std::vector<Worker>& workers) const;

  /// The ranks that still run.
  std::vector<StackTarget> stack_targets(const std::vector<Worker>& workers) const;

  /// The largest number of steps that a rank has completed; nullopt if no rank ever sent a heartbeat.
  std::optional<std::uint64_t> best_step() const;

 private:
  std::string folder_;
  /// By local rank.
  std::vector<std::string> files_;
  int first_rank_;
  std::string node_;
};

}  // namespace lockstep::launch
