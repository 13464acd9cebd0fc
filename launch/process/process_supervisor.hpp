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

/// Signals as events: blocked for the process and read one after the other, so that nothing happens in a
/// signal handler and nothing is missed while the launcher is busy. One object a process, on its only thread.
///
/// Taken: SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, the request for stacks and the signals
/// that end a job. A SIGHUP that is ignored when the launcher starts, as under nohup, stays ignored.
class SignalFd {
 public:
  /// `end_signals` are those that ask the job to end; the others that are taken are for the ranks alone.
  /// Throws lockstep::Error when the system refuses.
  explicit SignalFd(std::vector<int> end_signals);
  /// The signals act as before; requests for stacks are ignored from now on.
  ~SignalFd();
  SignalFd(const SignalFd&) = delete;
  SignalFd& operator=(const SignalFd&) = delete;

  /// The next signal; 0 where `deadline` came first (Deadline::max(): never), or one of the `inputs`
  /// (descriptors, -1: none) can be read.
  int wait(net::Deadline deadline, const std::vector<int>& inputs);

  /// Whether the signal asks the job to end.
  bool ends_job(int signal_number) const noexcept;

  /// For the child of a fork, before exec: the signals act as they did before the launcher.
  void restore_in_child() const noexcept;

 private:
  std::vector<int> end_signals_;
  sigset_t original_mask_{};
  void (*original_pipe_action_)(int) = SIG_DFL;
  net::FileDescriptor descriptor_;
};

/// The signal on which `lockstep run` prints the stacks of its ranks (`lockstep stacks`).
int stacks_request() noexcept;

/// What tells the processes of one launcher's job from all others of the host, even when their parents are
/// gone and they have made sessions of their own: a random value in LOCKSTEP_LAUNCHERS, which children
/// inherit. A launcher that a rank starts appends its own, so that the outer one still knows its processes.
class JobTag {
 public:
  explicit JobTag(const Environment& environment);

  void add_to(Environment& environment) const;
  const std::string& value() const noexcept { return value_; }

 private:
  std::string value_;
  std::string all_;
};

/// TMPDIR, else /tmp; absolute.
std::filesystem::path temporary_parent(const Environment& environment);

/// A folder of this user's own below TMPDIR (else /tmp), removed with all that is in it when the object goes.
class TemporaryFolder {
 public:
  /// Throws lockstep::Error that names the place when it cannot be made.
  explicit TemporaryFolder(const Environment& environment);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// A small process that outlives the launcher by a moment. Should the launcher be killed (SIGKILL, out of
/// memory), the kernel kills the ranks; the orphan reaper kills what they have started, wherever that is, and
/// removes the temporary folder. It learns of the launcher's end from a pipe, so it costs nothing until then.
///
/// It is a child without an end signal: waiting for "any child" does not see it. One object a process.
class OrphanReaper {
 public:
  /// `folder`: removed when the launcher dies before the destructor. `tag`: processes with this JobTag die
  /// with the launcher, but other orphan reapers and those that have wiped their environment; empty: only
  /// those of the process groups that are watched. Throws lockstep::Error.
  OrphanReaper(const std::string& folder, const std::string& tag);
  /// It ends and touches nothing.
  ~OrphanReaper();
  OrphanReaper(const OrphanReaper&) = delete;
  OrphanReaper& operator=(const OrphanReaper&) = delete;

  /// From now on the process group dies with the launcher; `release` takes it back.
  void watch(pid_t group) const noexcept { send(group); }
  void release(pid_t group) const noexcept { send(-group); }

  pid_t pid() const noexcept { return pid_; }

 private:
  void send(pid_t message) const noexcept;

  pid_t pid_ = 0;
  net::FileDescriptor pipe_;
};

/// What a launcher needs before it may start threads or ranks: signals become events in every thread, and an
/// orphan reaper, which is forked and so must come first, watches over what is started later.
struct ProcessSupervisor {
  ProcessSupervisor(const Environment& environment, const std::vector<int>& end_signals, bool keep_daemons)
      : signals(end_signals),
        folder(environment),
        tag(environment),
        reaper(folder.path(), keep_daemons ? "" : tag.value()) {}

  SignalFd signals;
  TemporaryFolder folder;
  /// To be put into the environment of all that is started.
  JobTag tag;
  OrphanReaper reaper;
};

}  // namespace lockstep::launch
