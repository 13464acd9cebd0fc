#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/runtime/rank_counters.hpp"
#include "lockstep/core/runtime/heartbeat.hpp"

namespace lockstep::launch {

/// The status of one rank, as seen by its node's launcher. Times are durations, as nodes do not share a
/// clock.
struct RankStatus {
  int rank = 0;
  /// "pid 77", or "node1, pid 77" if there are several nodes.
  std::string process;
  /// nullopt: it never sent a heartbeat.
  std::optional<HeartbeatRecord> beat;
  /// Known on the rank's own host.
  std::optional<RankCounters> counters = {};
  /// The state of its process as in ps (ProcessStat::state); '?': unknown.
  char process_state = '?';
  /// Time since its last heartbeat.
  std::chrono::milliseconds still{0};
  /// The wait status; nullopt while it runs.
  std::optional<int> status;
};

/// Whether the process cannot run: it is stopped, held by a debugger, or waits in the kernel. *Local*.
bool is_held(const RankStatus& rank);

/// A job in which no rank makes progress.
struct Hang {
  /// The ranks to look at; empty: all wait in one place for something outside.
  std::vector<int> stuck;
  /// Whether some rank waits. Otherwise all do their own work, which may be correct.
  bool somebody_waits = false;
  /// The ranks are stuck in their own work or have exited, whatever ranks outside the list do.
  bool is_certain = false;
  /// "rank 3 (pid 77) has made no progress for 31 s: last seen in forward, step 57; ranks 0, 1, 2 have been
  /// waiting in all_reduce #412 for 30 s".
  std::string text;
};

/// Looks for a hang: every running rank has sent heartbeats, but none within `limit`. The first of these
/// groups that is not empty is at fault: ranks whose process is stopped, held by a debugger or stuck in a
/// device; ranks that do their own work, of which those that are behind in steps come first; ranks that
/// exited early; ranks that are behind in steps; ranks that wait in another place than most. *Local*.
std::optional<Hang> find_hang(const std::vector<RankStatus>& views, std::chrono::milliseconds limit);

/// Whom the rank `failed` had lost, after the end of its job: "rank 1 left at step 30 (exit code 0) while
/// rank 0 was in all_reduce #61". If none has left and it was aborted, as by NCCL's watchdog, which knows no
/// names, the ranks that were behind: "rank 1 (pid 77) has made no progress for 31 s: last seen in forward,
/// step 57". Otherwise empty. *Local*.
std::string lost_peers(const std::vector<RankStatus>& views, int failed);

struct HangOptions {
  /// When a hang is first reported; later reports follow after twice the time, and so on.
  std::chrono::milliseconds notice_after = std::chrono::seconds(30);
  /// When a hang ends the job; 0: never.
  std::chrono::milliseconds timeout{0};
  /// Whether these are all ranks of the job. Otherwise a hang in which all ranks wait is not reported, as
  /// they may wait for an unknown rank.
  bool sees_all_ranks = true;
};

/// Decides when a hang of a round is reported, and when it ends the job. Has no clock.
class HangDetector {
 public:
  explicit HangDetector(const HangOptions& options) : options_(options) {}

  struct Finding {
    Hang hang;
    /// The hang has lasted for the timeout. Reported once, unless a rank makes progress meanwhile.
    bool ends_job = false;
  };
  /// To be called about once a second.
  std::optional<Finding> look(const std::vector<RankStatus>& now);

 private:
  HangOptions options_;
  std::chrono::milliseconds next_notice_ = options_.notice_after;
  bool ended_ = false;
};

}  // namespace lockstep::launch
