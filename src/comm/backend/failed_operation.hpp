#pragma once

#include <fmt/core.h>

#include <atomic>
#include <mutex>
#include <string>

#include "lockstep/core/error.hpp"

namespace lockstep::comm {

/// An operation that was not run, because an earlier one of its group had failed on this rank.
class EarlierOperationFailed : public CommunicationError {
 public:
  using CommunicationError::CommunicationError;
};

/// The first failed operation of a group on this rank. Those that come after it are not run.
///
/// One that fails before it begins has used none of the numbers by which Gloo matches the ranks' operations.
/// The next one would take its number, and meet the failed one's peers: Gloo ends a process that receives
/// more bytes than it expects. Any thread.
class FailedOperation {
 public:
  /// Throws EarlierOperationFailed if one has failed. `what`: the operation that is about to run.
  void check(const std::string& who, const char* what) const {
    if (!any_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(mutex_);
    throw EarlierOperationFailed(fmt::format(
        "{}: {} was not run, because {} had failed before: {}. Form the group again on every rank "
        "(abort, reform), or make a new one",
        who, what, name_, text_));
  }
  bool any() const noexcept { return any_.load(std::memory_order_acquire); }
  /// The first call counts.
  void note(const char* name, const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (any_.load(std::memory_order_relaxed)) return;
    name_ = name;
    text_ = text;
    any_.store(true, std::memory_order_release);
  }

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> any_{false};
  std::string name_, text_;
};

/// Runs `body`, an operation of that name, unless an earlier one has failed. Notes its failure, except for a
/// UsageError: that is a call which all ranks refuse alike.
template <class Body>
void run_after_success(FailedOperation& failed, const std::string& who, const char* name, Body&& body) {
  failed.check(who, name);
  try {
    body();
  } catch (const UsageError&) {
    throw;
  } catch (const std::exception& error) {
    failed.note(name, error.what());
    throw;
  }
}

}  // namespace lockstep::comm
