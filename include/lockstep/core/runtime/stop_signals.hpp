#pragma once

#include <csignal>
#include <initializer_list>
#include <vector>

namespace lockstep {

/// The value with which a launcher sends SIGTERM (by sigqueue) when a rank has failed and the others cannot
/// go on: there is nothing to save then, and a StopSignals lets the signal end the process.
constexpr int kTerminateNow = 0x4c6f636b;

/// Turns signals into a flag that a training loop looks at, for as long as it lives.
///
///     const StopSignals signals({SIGUSR1, SIGTERM});
///     while (!done && signals.received() == 0) step();
///
/// The handler does nothing but set the flag (but for kTerminateNow, see there), system calls go on after it
/// (SA_RESTART), and whatever the process did on these signals before comes back with the destructor. The
/// flag is the process's: it stays set until a StopSignals is made where there is no other. Making and
/// destroying them is for one thread at a time; received() is for any. *Local*. Not copied and not moved.
class StopSignals {
 public:
  /// Throws UsageError for a signal that cannot be caught.
  explicit StopSignals(std::initializer_list<int> signals);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The signal that came first, or 0.
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
