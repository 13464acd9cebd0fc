#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/runtime/program.hpp"
#include "net/deadline.hpp"
#include "net/file_descriptor.hpp"

namespace lockstep::launch {

/// The program could not be started. `exit_code()` is a shell's: 127 not found, 126 not executable.
class SpawnError : public Error {
 public:
  SpawnError(const std::string& text, int exit_code) : Error(text), exit_code_(exit_code) {}

  int exit_code() const noexcept { return exit_code_; }

 private:
  int exit_code_;
};

/// Opens /dev/null for those of the descriptors 0 to 2 that are closed, as after `>&-`. To be called before
/// anything else opens a file, which would become a standard stream here and in every rank. *Local*.
void open_standard_descriptors() noexcept;

/// Replaces this process by the program of `command` (searched in PATH) with `environment`. Never returns;
/// throws SpawnError. *Local*.
[[noreturn]] void replace_process(std::vector<std::string> command, const Environment& environment);

/// A process between fork and exec. Usually its program begins within a millisecond. On a file system that
/// hangs it may never begin, so no function waits longer than the caller's limit. All *Local*.
class SpawnedProcess {
 public:
  /// If the program's file cannot be read within this time, the start fails.
  static constexpr std::chrono::seconds kExecTimeout{60};

  /// Forks a process that executes `command` (searched in PATH) with `environment` and the launcher's
  /// standard streams. It leads its own session and process group, so that it and its children can be
  /// signaled together. The kernel kills it when the launcher dies. `in_child` runs between fork and exec:
  /// only async-signal-safe calls. Throws SpawnError.
  SpawnedProcess(std::vector<std::string> command, const Environment& environment,
                 const std::function<void()>& in_child);

  pid_t pid() const noexcept { return pid_; }
  /// Becomes readable when the program has begun, or has failed to.
  int descriptor() const noexcept { return report_.get(); }
  /// When `has_begun` gives up.
  net::Deadline deadline() const noexcept { return deadline_; }

  /// Waits at most `limit`. Throws SpawnError if the program cannot be started or the deadline has passed;
  /// then the process has ended, or was sent SIGKILL.
  bool has_begun(std::chrono::milliseconds limit);

 private:
  std::string program_;
  pid_t pid_ = 0;
  net::FileDescriptor report_;
  net::Deadline deadline_;
};

/// One rank's process.
struct Worker {
  int local_rank = 0;
  pid_t pid = 0;
  /// The number of the rank's process, 0 for the first; spares are counted too.
  int process = 0;
  /// The wait status; nullopt while it runs.
  std::optional<int> status = {};
  /// When it ended, in seconds since 1970; 0: it runs.
  std::int64_t ended = 0;
  /// Peak memory in bytes, including children that it waited for; 0: it runs.
  std::int64_t peak_memory = 0;
  /// Its process group outlived it. An empty group's number is released, and may be another group's by now.
  bool left_processes = false;
  /// It was asked to stop before it ended.
  bool stopped = false;
  /// The launcher sent it SIGKILL before it ended.
  bool killed = false;

  /// It exited with the code for a saved state.
  bool preempted() const noexcept { return status == kPreemptedExitCode << 8; }
  /// It ended by itself, without success and without a saved state.
  bool failed() const noexcept { return status && *status != 0 && !stopped && !preempted(); }
};

/// Standard output and standard error of a rank; empty: the launcher's.
struct WorkerOutput {
  net::FileDescriptor out;
  net::FileDescriptor err;

  /// In the child, before exec: installs them. Async-signal-safe.
  void apply() const noexcept;
};

}  // namespace lockstep::launch
