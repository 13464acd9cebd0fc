#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/runtime/program.hpp"

namespace lockstep::launch {

/// What is known of one rank at the end of a round that did not succeed: enough to report on it from any
/// node.
struct ProcessFailure {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = 0;
  /// "node 1, host b" where the job has several nodes, else empty.
  std::string node = {};
  std::string host = {};
  /// When it ended, or when it says so itself: seconds since 1970; 0: unknown.
  std::int64_t time = 0;
  /// How the program is called.
  std::string program = {};
  /// What waitpid said; nothing for a process that did not end.
  std::optional<int> status = std::nullopt;
  /// It was told to stop before it ended, and by SIGKILL.
  bool stopped = false;
  bool killed = false;
  /// What the rank says itself, and the whole content of its error file where that is JSON.
  std::string message = {};
  nlohmann::json error = nullptr;
  /// Its error file, where it is kept or there is something wrong with it.
  std::string error_file = {};
  /// Processes of this rank's node that the kernel's OOM killer ended during the round; nothing where no
  /// cgroup tells.
  std::optional<std::int64_t> oom_kills = std::nullopt;
  /// The most memory that the process had at a time, in bytes; 0: not known.
  std::int64_t peak_memory = 0;
  /// It had not failed, but made no progress, and the job was ended because of it.
  bool hung = false;
  /// The file that has its standard error, and what it ended with; empty: not kept, or not known.
  std::string log_file = {};
  std::string last_lines = {};
  /// It says itself that it only lost another rank, or waited for it in vain (error_file.hpp).
  bool is_secondary = false;

  /// The kernel's OOM killer ended it, for all that is known.
  bool killed_by_oom() const noexcept { return status == SIGKILL && !killed && oom_kills.value_or(0) > 0; }
  /// It ended by itself and not with success.
  bool failed() const noexcept { return hung || killed_by_oom() || (status && *status != 0 && !stopped); }
  /// It has ended because others did not come in time (kTimeoutExitCode).
  bool timed_out() const noexcept { return status == kTimeoutExitCode << 8; }
};

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

/// What a person needs after a failure: the cause, how it ended, its own message, when and where, and the
/// last lines of its standard error; then the same of the first few ranks that failed as well, and a line for
/// all the others of a kind, as for those with the same message or that only did as they were told. With
/// several ranks the cause is repeated in the last line, which is the one that a person sees first.
std::string failure_report(const std::vector<ProcessFailure>& failures, std::size_t cause);

/// What a round comes to whose failures these are, in the order in which they were reported. *Local*.
FailureSummary analyze_failures(const std::vector<ProcessFailure>& failures);

}  // namespace lockstep::launch
