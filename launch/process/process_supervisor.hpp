#pragma once

#include <sys/types.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/core/environment.hpp"
#include "net/deadline.hpp"
#include "net/file_descriptor.hpp"

namespace lockstep::launch {

/// Signals as events: they are blocked for the process and read one by one. Nothing runs in a signal handler,
/// and no signal is lost while the launcher is busy. One object per process, on its only thread.
///
/// Covers SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, the request for stacks and the signals
/// that end a job. If SIGHUP is ignored when the launcher starts, as under nohup, it stays ignored.
class SignalFd {
 public:
  /// `end_signals` ask the job to end; the others are only forwarded to the ranks. Throws lockstep::Error if
  /// the system refuses.
  explicit SignalFd(std::vector<int> end_signals);
  /// Restores the signals; requests for stacks and signals that are only forwarded are ignored from now on.
  ~SignalFd();
  SignalFd(const SignalFd&) = delete;
  SignalFd& operator=(const SignalFd&) = delete;

  /// The next signal; 0 at `deadline` (Deadline::max(): never) or if one of the `inputs` (descriptors, -1:
  /// none) is readable.
  int wait(net::Deadline deadline, const std::vector<int>& inputs);

  /// Whether the signal asks the job to end.
  bool ends_job(int signal_number) const noexcept;

  /// For the child of a fork, before exec: restores the signals as they were before the launcher.
  void restore_in_child() const noexcept;

 private:
  std::vector<int> end_signals_;
  sigset_t original_mask_{};
  void (*original_pipe_action_)(int) = SIG_DFL;
  void (*original_size_action_)(int) = SIG_DFL;
  net::FileDescriptor descriptor_;
};

/// The signal that makes `lockstep run` print the stacks of its ranks (`lockstep stacks`).
int stacks_request() noexcept;

/// Identifies the processes of one launcher's job, even if their parents have ended and they have started
/// their own sessions: a random value in LOCKSTEP_LAUNCHERS, which children inherit. A launcher that a rank
/// starts appends its own value, so the outer launcher still recognizes its processes.
class JobTag {
 public:
  explicit JobTag(const Environment& environment);

  void add_to(Environment& environment) const;
  const std::string& value() const noexcept { return value_; }

 private:
  std::string value_;
  std::string all_;
};

/// TMPDIR, otherwise /tmp; absolute.
std::filesystem::path temporary_parent(const Environment& environment);

/// A private folder below TMPDIR (otherwise /tmp). The destructor removes it with its contents.
class TemporaryFolder {
 public:
  /// Throws lockstep::Error that names the parent folder if it cannot be created.
  explicit TemporaryFolder(const Environment& environment);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// A small process that outlives the launcher. If the launcher is killed (SIGKILL, OOM), the kernel kills the
/// ranks, and the orphan reaper kills whatever they started and removes the temporary folder. It detects the
/// launcher's end by a pipe, so it costs nothing until then.
///
/// It is a child without a termination signal, so waiting for any child does not return it. One object per
/// process.
class OrphanReaper {
 public:
  /// `folder` is removed if the launcher dies before the destructor. Processes with `tag`, a JobTag, are then
  /// killed, except other orphan reapers and processes that have cleared their environment; empty: only the
  /// watched process groups are killed. Throws lockstep::Error.
  OrphanReaper(const std::string& folder, const std::string& tag);
  /// Ends the reaper, which then kills and removes nothing.
  ~OrphanReaper();
  OrphanReaper(const OrphanReaper&) = delete;
  OrphanReaper& operator=(const OrphanReaper&) = delete;

  /// From now on the process group is killed when the launcher dies; `release` undoes this.
  void watch(pid_t group) const noexcept { send(group); }
  void release(pid_t group) const noexcept { send(-group); }

  pid_t pid() const noexcept { return pid_; }

 private:
  void send(pid_t message) const noexcept;

  pid_t pid_ = 0;
  net::FileDescriptor pipe_;
};

/// What a launcher needs before it starts threads or ranks: signals are events in every thread, and the
/// orphan reaper, which must be forked first, watches what is started later.
struct ProcessSupervisor {
  ProcessSupervisor(const Environment& environment, const std::vector<int>& end_signals, bool keep_daemons)
      : signals(end_signals),
        folder(environment),
        tag(environment),
        reaper(folder.path(), keep_daemons ? "" : tag.value()) {}

  SignalFd signals;
  TemporaryFolder folder;
  /// To be added to the environment of everything that is started.
  JobTag tag;
  OrphanReaper reaper;
};

}  // namespace lockstep::launch
