#pragma once

#include <sys/types.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace lockstep::launch {

/// What is known of one rank at the end of a round that did not succeed: enough to report on it from any
/// node.
struct ProcessFailure {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = 0;
  /// "node 1, host b" where the job has several nodes, else empty.
  std::string node = {};
  /// The host that the rank ran on.
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
  bool killed_by_oom() const noexcept;
  /// It died of a signal that nobody here sent, and that is no usual consequence of another rank's end.
  bool crashed() const noexcept;
  /// It ended by itself and not with success.
  bool failed() const noexcept { return hung || killed_by_oom() || (status && *status != 0 && !stopped); }
  /// It has ended because others did not come in time (kTimeoutExitCode).
  bool timed_out() const noexcept;
};

nlohmann::json to_json(const ProcessFailure& record);

/// Throws DataError for what is not of that form, as from another version. Texts are cut to a few kilobytes.
ProcessFailure read_process_failure(const nlohmann::json& json);

}  // namespace lockstep::launch
