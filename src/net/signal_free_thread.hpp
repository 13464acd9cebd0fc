#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace lockstep::net {

/// A thread that takes no signal: those of the process stay with the threads of the program, which may wait
/// for them in ways of their own.
template <class Body>
std::thread signal_free_thread(Body&& body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  struct Restore {
    const sigset_t& mask;
    ~Restore() { pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
  } restore{before};
  return std::thread(std::forward<Body>(body));
}

}  // namespace lockstep::net
