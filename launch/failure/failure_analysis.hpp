#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "failure/process_failure.hpp"

namespace lockstep::launch {

/// What a failed round comes to.
struct FailureSummary {
  /// All that is known, for people: one node prints it.
  std::string report;
  /// The cause in one line, for the other nodes.
  std::string headline;
  int exit_code = 1;
  /// Every rank that did not succeed asked for this end itself, after saving its state: no restart follows.
  bool preempted = false;
  /// Some rank failed for a reason of its own, not because another one was gone.
  bool has_own_cause = false;
  /// The content of the cause's error file; null: it left none.
  nlohmann::json error = nullptr;
};

/// The failure that is the cause, of those of a round whose first is of the rank that failed first. A rank
/// that only lost another one is not the cause where some rank crashed or has an error of its own, and one
/// that ended without a message is not where some rank crashed: of the two, either may end, or be heard of,
/// first. `failures` is not empty.
std::size_t root_cause(const std::vector<ProcessFailure>& failures);

/// What a person needs after a failure: the cause, how it ended, with its own message where it left one, when
/// and where, and the last lines of its standard error; then the same of the first few ranks that failed as
/// well, and a line for all the others of a kind, as for those that only did as they were told. Where there
/// is more than one rank the cause is repeated in the last line, which is the one that a person sees first.
std::string failure_report(const std::vector<ProcessFailure>& failures, std::size_t cause);

/// What a round comes to whose failures these are, in the order in which they were reported. *Local*.
FailureSummary analyze_failures(const std::vector<ProcessFailure>& failures);

}  // namespace lockstep::launch
