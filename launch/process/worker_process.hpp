#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "lockstep/core/environment.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::launch {

/// The program could not be started. `exit_code()` is a shell's: 127 not found, 126 found and not executable.
class SpawnError : public Error {
 public:
  SpawnError(const std::string& text, int exit_code) : Error(text), exit_code_(exit_code) {}

  int exit_code() const noexcept { return exit_code_; }

 private:
  int exit_code_;
};

/// Starts `command` (searched in PATH) with `environment` and the launcher's standard streams, as the
/// coordinator of a session and process group of its own, so that it and its children can be signalled
/// together. It is killed by the kernel when the launcher dies. `in_child` runs between fork and exec: only
/// async-signal-safe calls. Returns its process id once the program has begun; throws SpawnError when it has
/// not. *Local*.
pid_t start_process(const std::vector<std::string>& command, const Environment& environment,
                    const std::function<void()>& in_child);

/// The processes of the host, as far as they are seen from here. *Local*.
std::vector<pid_t> all_processes();

/// The living and dead-but-unreaped children of this process. *Local*.
std::vector<pid_t> child_processes();

}  // namespace lockstep::launch
