#pragma once

#include <csignal>
#include <initializer_list>
#include <vector>

namespace lockstep {

/// The value that a launcher sends with SIGTERM (sigqueue) if a rank has failed and the others cannot
/// continue: nothing can be saved then, and StopSignals lets the signal end the process.
constexpr int kTerminateNow = 0x4c6f636b;

/// Turns signals into a flag that a training loop checks, during the lifetime of the object.
///
///     const StopSignals signals({SIGUSR1, SIGTERM});
///     while (!done && signals.received() == 0) step();
///
/// The handler only sets the flag (except for kTerminateNow), system calls are restarted (SA_RESTART), and
/// the destructor restores the previous handlers. The flag is global: it stays set until a StopSignals is
/// created while no other exists. Create and destroy them in one thread at a time; received() may be called
/// from any thread. *Local*. Neither copyable nor movable.
class StopSignals {
 public:
  /// Throws UsageError if a signal cannot be caught.
  explicit StopSignals(std::initializer_list<int> signals);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The first signal received, or 0.
  static int received() noexcept;

 private:
  void restore() noexcept;

  struct Before {
    int signal;
    struct sigaction action;
  };
  std::vector<Before> before_;
};

}  // namespace lockstep
