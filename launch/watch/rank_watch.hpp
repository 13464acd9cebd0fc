#pragma once

#include <chrono>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "coordination/messages.hpp"
#include "process/worker_group.hpp"
#include "watch/stack_dump.hpp"
#include "watch/standstill.hpp"

namespace lockstep::launch {

/// The heartbeat file of one rank of this node, in the launcher's own folder (never in a log folder, which
/// may lie on a network file system): `<folder>/heartbeats_<round>/<local rank>`.
std::string heartbeat_file(const std::string& folder, int round, int local_rank);

struct WatchOptions {
  /// When a standstill is told for the first time; then after twice the time, and so on.
  std::chrono::milliseconds notice_after = std::chrono::seconds(30);
  /// When it ends the job; 0: never.
  std::chrono::milliseconds timeout{0};
  /// Whether these are all ranks of the job. Otherwise ranks that all wait prove nothing: the one that they
  /// wait for may be on another node.
  bool sees_all_ranks = true;
};

/// Looks at the heartbeats of one attempt's ranks, about once a second. For the launcher's thread.
class RankWatch {
 public:
  using Clock = std::chrono::steady_clock;

  /// Makes the heartbeat files. `first_rank` is the number in the world of local rank 0, `node` a name for
  /// messages, empty where there is one node. Throws lockstep::Error.
  RankWatch(const std::string& folder, const Assignment& place, int ranks, const std::string& node,
            const WatchOptions& options);
  /// Removes them.
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  const std::string& file(int local_rank) const { return files_[static_cast<std::size_t>(local_rank)]; }
  /// Names the file to the rank.
  void add_to(Environment& environment, int local_rank) const;

  /// When to look next.
  Clock::time_point next_look() const noexcept { return next_look_; }

  /// Looks. Notices go to `log`; returned is a standstill that has lasted for the timeout, once.
  std::optional<Standstill> look(const std::vector<Worker>& workers, std::ostream& log);

  /// The ranks as they are now.
  std::vector<RankView> views(const std::vector<Worker>& workers) const;

  /// Whose stacks can be asked for.
  std::vector<StackTarget> stack_targets(const std::vector<Worker>& workers) const;

  /// The most steps that a rank has done; nothing when none has ever beaten.
  std::optional<std::uint64_t> best_step() const;

 private:
  std::optional<Standstill> standstill(const std::vector<RankView>& now,
                                       std::chrono::milliseconds limit) const;
  void tell(const Standstill& standstill, std::ostream& log);

  std::vector<std::string> files_;
  int first_rank_;
  std::string node_;
  WatchOptions options_;
  Clock::time_point next_look_;
  std::chrono::milliseconds next_notice_;
  bool ended_ = false;
};

}  // namespace lockstep::launch
