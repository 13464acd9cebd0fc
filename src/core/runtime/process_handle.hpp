#pragma once

#include <sys/types.h>

#include <cstdint>

#include "core/file_descriptor.hpp"

namespace lockstep {

/// What the kernel says of a process in /proc/<pid>/stat. See proc(5).
struct ProcessStat {
  char state = 0;  // 'R', 'S', 'Z', ...; 0: there is no such process, or no /proc.
  pid_t parent = 0;
  std::uint64_t start = 0;  // In clock ticks since the boot: a number that is given again has another one.
};
ProcessStat process_stat(pid_t pid);

/// Whether the process that had this number and start time is gone, or a zombie. A start time of 0 is one
/// that nobody knows: a zombie, or a successor, is taken for the process then.
bool has_ended(pid_t pid, std::uint64_t start);

/// A process that is watched until it ends: through a pidfd, or where the kernel has none (before 5.3) by its
/// start time in /proc, so that another process with its number is not taken for it. *Local*.
class ProcessHandle {
 public:
  /// Watches nobody, who never ends.
  ProcessHandle() = default;
  explicit ProcessHandle(pid_t pid);

  /// A zombie has ended. Any thread.
  bool has_ended() const noexcept;

  /// False, with errno set, when the process is gone or may not be signalled. Where the kernel has no pidfds
  /// a window of microseconds remains in which its number may be given to another one.
  bool signal(int number) const noexcept;

  /// Readable when the process has ended; -1: the kernel has no pidfds.
  int descriptor() const noexcept { return descriptor_.get(); }

 private:
  pid_t pid_ = 0;
  FileDescriptor descriptor_;
  std::uint64_t start_ = 0;
};

}  // namespace lockstep
