#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {

/// Time was up for a library below us, whose words tell neither what this rank did nor which ranks are
/// missing.
class LibraryTimeout : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What a library's failure becomes: who catches these knows that nobody has looked yet which ranks are to
/// blame.
class WaitTimedOut : public TimeoutError {
 public:
  using TimeoutError::TimeoutError;
};
class ConnectionLost : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

/// Throws the exception in flight again as one of Lockstep's: WaitTimedOut for a LibraryTimeout and for
/// c10d's store, else ConnectionLost. `what` says what was being done, and by which rank. Lockstep's own
/// errors pass unchanged, and so does a lack of memory.
[[noreturn]] void rethrow_as_communication_error(const std::string& what);

/// Throws the exception in flight again: as rethrow_as_communication_error does where c10d or Gloo threw it,
/// unchanged where it comes from elsewhere. For code that runs both, such as backward.
[[noreturn]] void rethrow_lost_peer(const std::string& what);

/// Runs `action`; an exception of c10d becomes one of ours. `describe` is called only then.
template <class Action, class Describe>
auto translated(Action&& action, Describe&& describe) -> decltype(action()) {
  try {
    return std::forward<Action>(action)();
  } catch (...) {
    rethrow_as_communication_error(std::forward<Describe>(describe)());
  }
}

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

}  // namespace lockstep::comm
