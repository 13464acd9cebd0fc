#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

#include "core/runtime/crash_handler.hpp"

namespace lockstep {

/// Starts a thread that handles no signals of the process: they are left to the program's threads, which may
/// wait for them. Its own faults are reported as usual.
template <class Body>
std::thread signal_free_thread(Body&& body) {
  sigset_t all, before;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  struct Restore {
    const sigset_t& mask;
    ~Restore() { pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
  } restore{before};
  return std::thread([body = std::forward<Body>(body)]() mutable {
    use_crash_stack();
    body();
  });
}

}  // namespace lockstep
