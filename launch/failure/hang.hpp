#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "failure/rank_status.hpp"

namespace lockstep::launch {

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

/// Looks for a standstill: every rank that runs has beaten, and none of them within `limit`. Blamed are ranks
/// whose process is stopped, held by a debugger or stuck in a device, whatever they did before; else those
/// that do their own work while others wait; else those that left early; else those that are behind in steps;
/// else those that wait in another place than most. *Local*.
std::optional<Hang> find_hang(const std::vector<RankStatus>& views, std::chrono::milliseconds limit);

/// After the end of a job: "rank 1 left at step 30 (exit code 0) while rank 0 was in all_reduce #61"; empty
/// where no rank left with success while another one waited. *Local*.
std::string early_leavers(const std::vector<RankStatus>& views);

}  // namespace lockstep::launch
