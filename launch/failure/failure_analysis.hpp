#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::launch {

/// What a failed round comes to.
struct FailureSummary {
  /// What every node prints.
  std::string report;
  int exit_code = 1;
  /// Every rank that did not succeed asked for this end itself, after saving its state: no restart follows.
  bool preempted = false;
  /// Some rank failed for a reason of its own, not because another one was gone.
  bool has_own_cause = false;
  /// The content of the cause's error file; null: it left none.
  nlohmann::json error = nullptr;
};

/// What the failures say that agents sent (failure/process_failure.hpp), in the order in which they were told
/// of. Never throws; what is of another form counts for nothing.
FailureSummary analyze_failures(const std::vector<nlohmann::json>& failures);

}  // namespace lockstep::launch
