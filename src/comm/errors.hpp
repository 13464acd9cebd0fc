#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "coordination/connection_lost.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm {

/// A timeout of a library, whose message names neither this rank's operation nor the missing ranks.
class LibraryTimeout : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Lockstep's errors for failures of a library. The ranks that caused them are not determined yet.
class WaitTimedOut : public TimeoutError {
 public:
  using TimeoutError::TimeoutError;
};
using lockstep::ConnectionLost;

/// Rethrows the current exception as one of Lockstep's: WaitTimedOut for a LibraryTimeout and for c10d's
/// store, otherwise ConnectionLost. `what` names the operation and this rank. Lockstep's own errors and
/// out-of-memory errors are rethrown unchanged.
[[noreturn]] void rethrow_as_communication_error(const std::string& what);

/// Rethrows the current exception: as rethrow_as_communication_error() does if c10d or Gloo threw it,
/// otherwise unchanged. For code that may throw both, such as backward.
[[noreturn]] void rethrow_lost_peer(const std::string& what);

/// Runs `action`; an exception of c10d is translated to one of Lockstep's. `describe` is called only then.
template <class Action, class Describe>
auto translated(Action&& action, Describe&& describe) -> decltype(action()) {
  try {
    return std::forward<Action>(action)();
  } catch (...) {
    rethrow_as_communication_error(std::forward<Describe>(describe)());
  }
}

/// What LibTorch may log to standard error. The values are c10's levels.
enum class LibraryLog {
  /// For NCCL's watchdog, which logs an error and then ends the process: it is not reported elsewhere.
  errors = 2,
  /// When a connection is lost, c10d logs C++ stack traces of tens of lines per rank, which hide the line
  /// that says what happened. Lockstep's exceptions contain it.
  none = 3,
};

/// Sets LibTorch's log level to `wanted`, unless TORCH_CPP_LOG_LEVEL is set (which is applied),
/// TORCH_SHOW_CPP_STACKTRACES=1 is set, or the program has set a level itself. *Local*; must be called before
/// LibTorch's communication threads start.
void settle_library_log(LibraryLog wanted);

}  // namespace lockstep::comm
