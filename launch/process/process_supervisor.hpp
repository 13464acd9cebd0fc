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

/// The folder for temporary files: TMPDIR, otherwise the first of /tmp, /var/tmp, /dev/shm and the working
/// folder in which a small file can be written (as Python and torchrun choose); absolute. Says in `notices`
/// why it is not TMPDIR. Throws lockstep::Error that names them all.
std::filesystem::path temporary_parent(const Environment& environment, std::vector<std::string>& notices);

/// The launcher's temporary folder, and a small process that outlives the launcher. If the launcher is killed
/// (SIGKILL, OOM), the kernel kills the ranks, and the orphan reaper kills whatever they started. It removes
/// the folder however the launcher ends. It detects the launcher's end by a pipe, so it costs nothing until
/// then.
///
/// Processes of the job are recognized, even if their parents have ended and they have started their own
/// sessions, by a random tag in LOCKSTEP_LAUNCHERS, which children inherit. A launcher that a rank starts
/// appends its own tag, so the outer launcher still recognizes its processes. Spared are other orphan
/// reapers, and processes that have cleared their environment.
///
/// It is a child without a termination signal, so waiting for any child does not return it. One object per
/// process.
class OrphanReaper {
 public:
  /// `keep_daemons`: only the watched process groups are killed. `parent`: see temporary_parent. Throws
  /// lockstep::Error.
  OrphanReaper(const std::filesystem::path& parent, bool keep_daemons);
  /// Ends the reaper, which then kills nothing.
  ~OrphanReaper();
  OrphanReaper(const OrphanReaper&) = delete;
  OrphanReaper& operator=(const OrphanReaper&) = delete;

  /// A private folder below the parent.
  const std::string& folder() const noexcept { return folder_; }
  /// Adds the tag to the environment of what the launcher starts.
  void add_tag(Environment& environment) const;

  /// Whether the process has the tag. False if it has cleared its environment, or belongs to another user.
  bool has_tag(pid_t process) const;

  /// From now on the process group is killed when the launcher dies; `release` undoes this.
  void guard(pid_t group) const noexcept { send(group); }
  void release(pid_t group) const noexcept { send(-group); }

  pid_t pid() const noexcept { return pid_; }

 private:
  void send(pid_t message) const noexcept;

  std::string folder_;
  std::string tag_;
  pid_t pid_ = 0;
  net::FileDescriptor pipe_;
};

/// See ProcessSupervisor::may_have_strangers.
bool had_children_or_is_init();

/// What a launcher needs before it starts threads or ranks: signals are events in every thread, and the
/// orphan reaper, which must be forked first, watches what is started later.
struct ProcessSupervisor {
  ProcessSupervisor(const std::filesystem::path& temporary_parent, const std::vector<int>& end_signals,
                    bool keep_daemons)
      : signals(end_signals), reaper(temporary_parent, keep_daemons) {}

  /// Whether this process may have children that the job has not started: a shell had some before it became
  /// the launcher by `exec`, or it is PID 1 of a container, which gets the orphans of all others in it.
  const bool may_have_strangers = had_children_or_is_init();
  SignalFd signals;
  OrphanReaper reaper;
};

}  // namespace lockstep::launch
