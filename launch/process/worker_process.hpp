#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"
#include "net/file_descriptor.hpp"

namespace lockstep::launch {

/// The program could not be started. `exit_code()` is a shell's: 127 not found, 126 found and not executable.
class SpawnError : public Error {
 public:
  SpawnError(const std::string& text, int exit_code) : Error(text), exit_code_(exit_code) {}

  int exit_code() const noexcept { return exit_code_; }

 private:
  int exit_code_;
};

/// Opens /dev/null on those of the descriptors 0 to 2 that are closed, as after `>&-`. To be called before
/// anything else opens a file: that would become a standard stream, here and in every rank. *Local*.
void open_standard_descriptors() noexcept;

/// Makes this process the program of `command` (searched in PATH) with `environment`. Returns only by throwing
/// SpawnError. *Local*.
[[noreturn]] void replace_process(std::vector<std::string> command, const Environment& environment);

/// A process between fork and exec. It begins its program by itself, within a millisecond in most cases; on a
/// file system that hangs it may never begin, so nothing here waits for it longer than the caller says. All
/// *Local*.
class SpawnedProcess {
 public:
  using Clock = std::chrono::steady_clock;
  /// A program whose file cannot be read within this time does not start.
  static constexpr std::chrono::seconds kExecTimeout{60};

  /// Forks a process that executes `command` (searched in PATH) with `environment` and the launcher's
  /// standard streams, as the leader of a session and process group of its own, so that it and its children
  /// can be signalled together. It is killed by the kernel when the launcher dies. `in_child` runs between
  /// fork and exec: only async-signal-safe calls. Throws SpawnError.
  SpawnedProcess(const std::vector<std::string>& command, const Environment& environment,
                 const std::function<void()>& in_child);

  pid_t pid() const noexcept { return pid_; }
  /// Becomes readable when the program has begun, or cannot begin.
  int descriptor() const noexcept { return report_.get(); }
  /// When `has_begun` gives up.
  Clock::time_point deadline() const noexcept { return deadline_; }

  /// Waits for `limit` at most. Throws SpawnError when the program cannot be started or the deadline is over;
  /// the process is gone then, or has been sent SIGKILL.
  bool has_begun(std::chrono::milliseconds limit);

 private:
  std::string program_;
  pid_t pid_ = 0;
  net::FileDescriptor report_;
  Clock::time_point deadline_;
};

}  // namespace lockstep::launch
