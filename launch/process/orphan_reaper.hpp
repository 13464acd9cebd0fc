#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

#include "lockstep/core/environment.hpp"

namespace lockstep::launch {

/// What tells the processes of one launcher's job from all others of the host, even when their parents are
/// gone and they have made sessions of their own: a random word in LOCKSTEP_LAUNCHERS, which children
/// inherit. A launcher that a rank starts puts its own word behind, so that the outer one still knows its
/// own.
class JobTag {
 public:
  /// A fresh word, behind those that `environment` has already.
  explicit JobTag(const Environment& environment);

  void add_to(Environment& environment) const;
  const std::string& word() const noexcept { return word_; }

 private:
  std::string word_;
  std::string all_;
};

/// SIGKILL to every process of this user whose environment has the word, again and again until there is none,
/// for `limit` at most: what is killed may have started another one. The calling process and orphan reapers
/// are left out. A process that has wiped its environment is not found.
void kill_tagged(const std::string& word, std::chrono::milliseconds limit);

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
