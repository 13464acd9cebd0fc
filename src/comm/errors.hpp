#pragma once

#include <functional>
#include <string>
#include <utility>

namespace lockstep::comm {

/// Throws the exception in flight again as one of Lockstep's: TimeoutError where the text speaks of a
/// timeout, else CommunicationError. `what` says what was being done, and by which rank. Lockstep's own
/// errors pass unchanged.
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

}  // namespace lockstep::comm
