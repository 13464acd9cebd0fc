#pragma once

#include "lockstep/core/environment.hpp"

namespace lockstep::comm {

/// How much of its own log LibTorch may write to standard error. Numbers are c10's levels.
enum class LibraryLog {
  /// For the watchdog of NCCL, which logs an error and then ends the process: nobody else could tell of it.
  errors = 2,
  /// Around a lost connection c10d logs C++ stack traces, tens of lines a rank, and they hide the one line
  /// that says what happened; our exceptions carry it.
  none = 3,
};

/// Sets LibTorch's log to `wanted`, unless the user or the program has said something else:
/// TORCH_CPP_LOG_LEVEL is obeyed, TORCH_SHOW_CPP_STACKTRACES=1 leaves the log as it is, and so does a level
/// that the program has set itself. *Local*; before LibTorch's threads of communication start.
void settle_library_log(LibraryLog wanted);

/// Whether this environment asks for LibTorch's own log.
bool asks_for_library_log(const Environment& environment);

}  // namespace lockstep::comm
