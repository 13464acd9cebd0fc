#pragma once

#include <chrono>
#include <string>

namespace lockstep::coordination {

/// How long a wait that can be interrupted may go on without looking.
constexpr std::chrono::milliseconds kInterruptionLook{50};

/// Lets the calling thread's waits for other ranks be ended from another thread: it then looks every 50 ms,
/// where it would have looked every second. For the thread that trains, in a job whose ranks are replaced: an
/// abort of the group ends operations, but a wait at the job's store is none. One thread per process.
/// *Local*.
void make_waits_interruptible();
/// Ends the waits of that thread, and those that it begins later, with a CommunicationError that says why.
/// Any thread; the first reason counts.
void interrupt_waits(const std::string& why);
/// It may wait again.
void allow_waits();

/// Whether the calling thread is the one that can be interrupted.
bool is_interruptible() noexcept;
/// Throws if the calling thread's waits were interrupted.
void throw_if_interrupted();

/// Waits of the calling thread are not interrupted in a scope: for what is asked of those who plan the
/// recovery.
class UninterruptedWaits {
 public:
  UninterruptedWaits() noexcept;
  ~UninterruptedWaits();
  UninterruptedWaits(const UninterruptedWaits&) = delete;
  UninterruptedWaits& operator=(const UninterruptedWaits&) = delete;

 private:
  bool before_;
};

}  // namespace lockstep::coordination
