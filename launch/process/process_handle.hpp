#pragma once

#include <sys/types.h>

#include <cstdint>

#include "net/file_descriptor.hpp"

namespace lockstep::launch {

/// Holds on to one process, so that a signal never reaches another one that was given the same number
/// meanwhile. Uses a pidfd where the system has them (Linux 5.3), else compares the start times of the
/// process before each signal, which leaves a window of microseconds.
class ProcessHandle {
 public:
  /// `process` may be gone already: then there is nothing to signal.
  explicit ProcessHandle(pid_t process);

  /// False, with errno set, when the process is gone or may not be signalled. *Local*.
  bool signal(int number) const;

 private:
  const pid_t process_;
  net::FileDescriptor descriptor_;
  /// In clock ticks since the boot; 0: there is no such process, or a descriptor holds it.
  std::uint64_t start_ = 0;
};

}  // namespace lockstep::launch
