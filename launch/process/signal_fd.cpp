#include "process/signal_fd.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::launch {
namespace {

constexpr int kTaken[] = {SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2};

bool is_ignored(int signal_number) {
  struct sigaction action {};
  return sigaction(signal_number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

sigset_t taken_signals(const std::vector<int>& end_signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kTaken) sigaddset(&set, number);
  for (const int number : end_signals) sigaddset(&set, number);
  sigaddset(&set, stacks_request());
  if (is_ignored(SIGHUP)) sigdelset(&set, SIGHUP);
  return set;
}

timespec until(SignalFd::Clock::time_point deadline) {
  const auto left = std::max(deadline - SignalFd::Clock::now(), SignalFd::Clock::duration::zero());
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  return {nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
}

[[noreturn]] void fail(const char* what) {
  throw Error(fmt::format("cannot watch signals: {}: {}.", what, std::strerror(errno)));
}

}  // namespace

SignalFd::SignalFd(std::vector<int> end_signals) : end_signals_(std::move(end_signals)) {
  const sigset_t set = taken_signals(end_signals_);
  // An inherited "ignored" would reap children by itself, and would hide the other signals from the ranks.
  for (int number = 1; number < SIGRTMIN; ++number) {
    if (sigismember(&set, number) == 1) std::signal(number, SIG_DFL);
  }
  if (sigprocmask(SIG_BLOCK, &set, &original_mask_) != 0) fail("sigprocmask");
  descriptor_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (descriptor_ < 0) fail("signalfd");
  // A closed standard error must not end the launcher between starting the ranks and ending them.
  original_pipe_action_ = std::signal(SIGPIPE, SIG_IGN);
}

SignalFd::~SignalFd() {
  close(descriptor_);
  // A request that came too late would end the process.
  std::signal(stacks_request(), SIG_IGN);
  restore_in_child();
}

void SignalFd::restore_in_child() const noexcept {
  std::signal(SIGPIPE, original_pipe_action_);
  sigprocmask(SIG_SETMASK, &original_mask_, nullptr);
}

SignalFd::Event SignalFd::wait(Clock::time_point deadline, const std::vector<int>& inputs) {
  std::vector<pollfd> entries{{descriptor_, POLLIN, 0}};
  for (const int input : inputs) entries.push_back({input, POLLIN, 0});
  const bool has_deadline = deadline != Clock::time_point::max();
  for (;;) {
    signalfd_siginfo info{};
    if (read(descriptor_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      return {Wakeup::signal, static_cast<int>(info.ssi_signo)};
    }
    if (has_deadline && Clock::now() >= deadline) return {Wakeup::deadline, 0};
    const timespec left = has_deadline ? until(deadline) : timespec{};
    if (ppoll(entries.data(), entries.size(), has_deadline ? &left : nullptr, nullptr) < 0 && errno != EINTR)
      fail("ppoll");
    // Signals first: ranks that write without end must not drown them.
    const auto is_ready = [](const pollfd& entry) { return entry.revents != 0; };
    if (entries[0].revents == 0 && std::any_of(entries.begin() + 1, entries.end(), is_ready))
      return {Wakeup::input, 0};
  }
}

// The C library keeps the first real-time signals for itself, and says at run time where its own end.
int stacks_request() noexcept { return SIGRTMIN + 4; }

bool SignalFd::ends_job(int signal_number) const noexcept {
  return std::find(end_signals_.begin(), end_signals_.end(), signal_number) != end_signals_.end();
}

}  // namespace lockstep::launch
