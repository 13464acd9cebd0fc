#pragma once

#include <chrono>
#include <iosfwd>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/stack_dump.hpp"
#include "failure/hang.hpp"
#include "process/worker_group.hpp"
#include "rendezvous/messages.hpp"

namespace lockstep::launch {

/// What a node tells the coordinator of its ranks, which judges for all nodes: nothing while any of them
/// moves, then how they stand, and again when something about them changes.
class StillReport {
 public:
  /// `after`: how long they must have been still.
  explicit StillReport(std::chrono::milliseconds after) : after_(after) {}

  /// What is to be told now; an empty list: they move again. Nothing: no news.
  std::optional<std::vector<RankStatus>> news(const std::vector<RankStatus>& now);
  /// Whether what was told last is so no more.
  bool is_outdated(const std::vector<RankStatus>& now) const;

 private:
  std::chrono::milliseconds after_;
  std::vector<RankStatus> told_;
};

/// The heartbeat file of one rank of this node, in the launcher's own folder (never in a log folder, which
/// may lie on a network file system): `<folder>/heartbeats_<round>/<local rank>`.
std::string heartbeat_file(const std::string& folder, int round, int local_rank);

/// What people read of a hang that ends nothing.
std::string hang_notice(const std::string& text);

/// Looks at the heartbeats of one attempt's ranks, about once a second. For the launcher's thread.
class HeartbeatMonitor {
 public:
  using Clock = std::chrono::steady_clock;

  /// Makes the heartbeat files. `first_rank` is the number in the world of local rank 0, `node` a name for
  /// messages, empty where there is one node. `coordinator_judges`: what is seen is for the coordinator.
  /// Throws lockstep::Error.
  HeartbeatMonitor(const std::string& folder, const Assignment& place, int ranks, const std::string& node,
                   const HangOptions& options, bool coordinator_judges = false);
  /// Removes them.
  ~HeartbeatMonitor();
  HeartbeatMonitor(const HeartbeatMonitor&) = delete;
  HeartbeatMonitor& operator=(const HeartbeatMonitor&) = delete;

  const std::string& file(int local_rank) const { return files_[static_cast<std::size_t>(local_rank)]; }
  /// Names the file to the rank.
  void add_to(Environment& environment, int local_rank) const;

  /// When to look next.
  Clock::time_point next_look() const noexcept { return next_look_; }

  /// Looks. Notices go to `log`; returned is a hang that has lasted for the timeout, once. Nothing of
  /// that where the coordinator judges.
  std::optional<Hang> look(const std::vector<Worker>& workers, std::ostream& log);

  /// Where the coordinator judges: what it is to be told after a look (StillReport::news).
  std::optional<std::vector<RankStatus>> take_news() { return std::exchange(news_, std::nullopt); }
  /// Whether a rank has done something since the coordinator was told that none does.
  bool told_is_outdated(const std::vector<Worker>& workers) const {
    return report_.is_outdated(views(workers));
  }

  /// The ranks as they are now.
  std::vector<RankStatus> views(const std::vector<Worker>& workers) const;

  /// Whose stacks can be asked for.
  std::vector<StackTarget> stack_targets(const std::vector<Worker>& workers) const;

  /// The most steps that a rank has done; nothing when none has ever beaten.
  std::optional<std::uint64_t> best_step() const;

 private:
  std::vector<std::string> files_;
  int first_rank_;
  std::string node_;
  bool coordinator_judges_;
  HangDetector judge_;
  StillReport report_;
  std::optional<std::vector<RankStatus>> news_;
  Clock::time_point next_look_;
};

}  // namespace lockstep::launch
