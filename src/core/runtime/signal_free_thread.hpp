#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

#include "core/runtime/crash_handler.hpp"

namespace lockstep {

/// Blocks the process's signals, but not a thread's own faults, in this thread and those that it starts.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

/// Starts a thread that handles no signals of the process: they are left to the program's threads, which may
/// wait for them. Its own faults are reported as usual.
template <class Body>
std::thread signal_free_thread(Body&& body) {
  const SignalsBlocked blocked;
  return std::thread([body = std::forward<Body>(body)]() mutable {
    use_crash_stack();
    body();
  });
}

}  // namespace lockstep
