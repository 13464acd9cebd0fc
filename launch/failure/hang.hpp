#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/runtime/heartbeat.hpp"

namespace lockstep::launch {

/// One rank as its node's launcher sees it. Times are durations, since nodes do not share a clock.
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

/// A job in which no rank moves any more.
struct Hang {
  /// The ranks to look at; none: all wait in one place for something outside.
  std::vector<int> stuck;
  /// Whether somebody waits for them. Otherwise all are busy with their own work, which may be right.
  bool somebody_waits = false;
  /// The ranks are stuck in their own work or have left, whatever ranks that are not in the list do.
  bool is_certain = false;
  /// "rank 3 (pid 77) has not moved for 31 s: last seen in forward, step 57; ranks 0, 1, 2 wait in all_reduce
  /// #412 for 30 s".
  std::string text;
};

/// Looks for a hang: every rank that runs has beaten, and none of them within `limit`. Blamed are ranks
/// whose process is stopped, held by a debugger or stuck in a device, whatever they did before; else those
/// that do their own work while others wait; else those that left early; else those that are behind in steps;
/// else those that wait in another place than most. *Local*.
std::optional<Hang> find_hang(const std::vector<RankStatus>& views, std::chrono::milliseconds limit);

/// After the end of a job: "rank 1 left at step 30 (exit code 0) while rank 0 was in all_reduce #61"; empty
/// where no rank left with success while another one waited. *Local*.
std::string early_leavers(const std::vector<RankStatus>& views);

struct HangOptions {
  /// When a hang is reported for the first time; then after twice the time, and so on.
  std::chrono::milliseconds notice_after = std::chrono::seconds(30);
  /// When it ends the job; 0: never.
  std::chrono::milliseconds timeout{0};
  /// Whether these are all ranks of the job. Otherwise ranks that all wait prove nothing: the one that they
  /// wait for may be one that is not seen.
  bool sees_all_ranks = true;
};

/// When a hang of a round is reported, and when it ends the job. Knows no clock.
class HangDetector {
 public:
  explicit HangDetector(const HangOptions& options) : options_(options) {}

  struct Finding {
    Hang hang;
    /// It has lasted for the timeout. Reported once, unless some rank moves meanwhile.
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
