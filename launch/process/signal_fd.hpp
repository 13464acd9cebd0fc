#pragma once

#include <chrono>
#include <csignal>
#include <vector>

namespace lockstep::launch {

/// Signals as events: blocked for the process and read one after the other, so that nothing happens in a
/// signal handler and nothing is missed while the launcher is busy. One object a process, on its only thread.
///
/// Taken: SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, the request for stacks and the signals
/// that end a job. A SIGHUP that is ignored when the launcher starts, as under nohup, stays ignored.
class SignalFd {
 public:
  using Clock = std::chrono::steady_clock;

  /// `end_signals` are those that ask the job to end; the others that are taken are for the ranks alone.
  /// Throws lockstep::Error when the system refuses.
  explicit SignalFd(std::vector<int> end_signals);
  /// The signals act as before; requests for stacks are ignored from now on.
  ~SignalFd();
  SignalFd(const SignalFd&) = delete;
  SignalFd& operator=(const SignalFd&) = delete;

  /// What ended a wait.
  enum class Wakeup { signal, deadline, input };
  struct Event {
    Wakeup wakeup = Wakeup::signal;
    int signal_number = 0;
  };

  /// The next signal; or that `deadline` came first (time_point::max(): never), or that one of the `inputs`
  /// (descriptors, -1: none) can be read.
  Event wait(Clock::time_point deadline, const std::vector<int>& inputs);

  /// Whether the signal asks the job to end.
  bool ends_job(int signal_number) const noexcept;

  /// For the child of a fork, before exec: the signals act as they did before the launcher.
  void restore_in_child() const noexcept;

 private:
  std::vector<int> end_signals_;
  sigset_t original_mask_{};
  void (*original_pipe_action_)(int) = SIG_DFL;
  int descriptor_ = -1;
};

/// The signal on which `lockstep run` prints the stacks of its ranks (`lockstep stacks`).
int stacks_request() noexcept;

}  // namespace lockstep::launch
