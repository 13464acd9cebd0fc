#pragma once

#include <sys/types.h>

#include <string>

namespace lockstep::launch {

/// How the process is called.
inline constexpr const char* kOrphanReaperName = "lockstep-guard";

/// A small process that outlives the launcher by a moment. Should the launcher be killed (SIGKILL, out of
/// memory), the kernel kills the ranks; the orphan reaper kills what they have started, wherever that is, and
/// removes the temporary folder. It learns of the launcher's end from a pipe, so it costs nothing until then.
///
/// It is a child without an end signal: waiting for "any child" does not see it. One object a process.
class OrphanReaper {
 public:
  /// `folder`: removed when the launcher dies without a farewell. `word`: processes with this mark
  /// (job_mark.hpp) die with the launcher; empty: only those of the process groups that are watched. Throws
  /// lockstep::Error.
  OrphanReaper(const std::string& folder, const std::string& word);
  /// Says farewell: it ends and touches nothing.
  ~OrphanReaper();
  OrphanReaper(const OrphanReaper&) = delete;
  OrphanReaper& operator=(const OrphanReaper&) = delete;

  /// From now on the process group dies with the launcher; `release` takes it back.
  void watch(pid_t group) const noexcept { tell(group); }
  void release(pid_t group) const noexcept { tell(-group); }

  pid_t pid() const noexcept { return pid_; }

 private:
  void tell(pid_t message) const noexcept;

  pid_t pid_ = 0;
  int pipe_ = -1;
};

}  // namespace lockstep::launch
