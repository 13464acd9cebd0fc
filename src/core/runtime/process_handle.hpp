#pragma once

#include <sys/types.h>

#include <cstdint>

#include "core/file_descriptor.hpp"

namespace lockstep {

/// Fields of /proc/<pid>/stat. See proc(5).
struct ProcessStat {
  char state = 0;  // 'R', 'S', 'Z', ...; 0: no such process, or no /proc.
  pid_t parent = 0;
  std::uint64_t start = 0;  // In clock ticks since the boot; differs if a pid is reused.
};
ProcessStat process_stat(pid_t pid);

/// Whether the process with this pid and start time has ended or is a zombie. A start time of 0 means
/// unknown: then a zombie, or another process with the pid, counts as the process.
bool has_ended(pid_t pid, std::uint64_t start);

/// Watches a process until it ends: through a pidfd, or on kernels without pidfds (before 5.3) by its start
/// time in /proc, so that another process with its pid is not mistaken for it. *Local*.
class ProcessHandle {
 public:
  /// Watches no process; has_ended() is always false.
  ProcessHandle() = default;
  explicit ProcessHandle(pid_t pid);

  /// A zombie counts as ended. Any thread.
  bool has_ended() const noexcept;

  /// Sends a signal. Returns false, with errno set, if the process has ended or may not be signaled. Without
  /// pidfds, its pid may be reused within a window of microseconds.
  bool signal(int number) const noexcept;

  /// Readable when the process has ended; -1: the kernel has no pidfds.
  int descriptor() const noexcept { return descriptor_.get(); }

 private:
  pid_t pid_ = 0;
  FileDescriptor descriptor_;
  std::uint64_t start_ = 0;
};

}  // namespace lockstep
