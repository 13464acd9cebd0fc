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

/// What is known about one rank at the end of a failed round: enough to report it from any node.
struct ProcessFailure {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = 0;
  /// "node 1, host b" if the job has several nodes, otherwise empty.
  std::string node = {};
  std::string host = {};
  /// When the process ended, in seconds since 1970; 0: unknown.
  std::int64_t time = 0;
  /// The program's name.
  std::string program = {};
  /// The wait status; nullopt if the process did not end.
  std::optional<int> status = std::nullopt;
  /// Whether the launcher asked it to stop before it ended, and whether it sent SIGKILL.
  bool stopped = false;
  bool killed = false;
  /// The rank's own message, and the content of its error file; null: none.
  std::string message = {};
  nlohmann::json error = nullptr;
  /// Path of its error file, if it is kept or something is wrong with it.
  std::string error_file = {};
  /// Processes of this rank's node that the kernel's OOM killer killed during the round; nullopt if no cgroup
  /// tells.
  std::optional<std::int64_t> oom_kills = std::nullopt;
  /// Peak memory of the process in bytes; 0: unknown.
  std::int64_t peak_memory = 0;
  /// It did not fail, but the job was ended because it made no progress.
  bool hung = false;
  /// The file with its standard error, and its last lines; empty: not kept, or unknown.
  std::string log_file = {};
  std::string last_lines = {};
  /// It says that it only lost another rank, or waited for it until the timeout (error_file.hpp).
  bool is_secondary = false;

  /// Probably killed by the kernel's OOM killer.
  bool killed_by_oom() const noexcept { return status == SIGKILL && !killed && oom_kills.value_or(0) > 0; }
  /// It hung, or ended by itself without success.
  bool failed() const noexcept { return hung || killed_by_oom() || (status && *status != 0 && !stopped); }
  /// It ended because others did not arrive in time (kTimeoutExitCode).
  bool timed_out() const noexcept { return status == kTimeoutExitCode << 8; }
};

/// The result of a failed round.
struct FailureSummary {
  /// The full report, which one node prints.
  std::string report;
  /// The cause in one line, for the other nodes.
  std::string headline;
  int exit_code = 1;
  /// Every rank succeeded, or saved its state and exited: no restart follows.
  bool preempted = false;
  /// The root cause failed by itself, not because another rank was lost.
  bool has_own_cause = false;
  /// The content of the cause's error file; null: there is none.
  nlohmann::json error = nullptr;
};

/// The index of the root cause; the first of `failures` is that of the rank that failed first. A rank that
/// only lost another one is not the cause if some other rank failed by itself: crashed, reported its own
/// error, or ended without a message. A rank without a message is not the cause if some rank crashed: either
/// of the two may end, or be reported, first. `failures` must not be empty.
std::size_t root_cause(const std::vector<ProcessFailure>& failures);

/// The report for the user: the cause, how it ended, its message, time and host, and the last lines of its
/// standard error; then the same for the first few other ranks that failed, and one line for each group of
/// ranks that ended alike, such as those with the same message or those that were stopped. With several
/// ranks, the last line repeats the cause, as users see it first.
std::string failure_report(const std::vector<ProcessFailure>& failures, std::size_t cause);

/// Analyzes the failures of a round, in the order in which they were reported. *Local*.
FailureSummary analyze_failures(const std::vector<ProcessFailure>& failures);

}  // namespace lockstep::launch
