#include "coordination/interruption.hpp"

#include <atomic>
#include <mutex>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::coordination {
namespace {

/// Of the process: waits are deep below the code that knows of recoveries, and one thread of it trains.
struct Interruption {
  std::atomic<bool> is_set{false};
  std::mutex mutex;
  std::string why;
};

Interruption& interruption() {
  static Interruption one;
  return one;
}

thread_local bool interruptible = false;

}  // namespace

void make_waits_interruptible() { interruptible = true; }

void interrupt_waits(const std::string& why) {
  Interruption& one = interruption();
  const std::lock_guard lock(one.mutex);
  if (one.is_set.load()) return;
  one.why = why;
  one.is_set.store(true);
}

void allow_waits() { interruption().is_set.store(false); }

bool is_interruptible() noexcept { return interruptible; }

UninterruptedWaits::UninterruptedWaits() noexcept : before_(std::exchange(interruptible, false)) {}
UninterruptedWaits::~UninterruptedWaits() { interruptible = before_; }

void throw_if_interrupted() {
  Interruption& one = interruption();
  if (!interruptible || !one.is_set.load()) return;
  const std::lock_guard lock(one.mutex);
  throw CommunicationError("waiting for other ranks was interrupted: " + one.why);
}

}  // namespace lockstep::coordination
