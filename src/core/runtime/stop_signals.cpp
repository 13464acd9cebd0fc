#include "core/runtime/stop_signals.hpp"

#include <fmt/core.h>

#include <atomic>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

// A signal handler can only access globals.
std::atomic<int> first_signal{0};
std::atomic<int> users{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler must not take a lock");

void on_signal(int number, siginfo_t* info, void*) {
  if (info->si_code == SI_QUEUE && info->si_value.sival_int == kTerminateNow) {
    std::signal(number, SIG_DFL);
    std::raise(number);  // Delivered when this handler returns.
    return;
  }
  int none = 0;
  first_signal.compare_exchange_strong(none, number);
}

}  // namespace

StopSignals::StopSignals(std::initializer_list<int> signals) {
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  if (users == 0) first_signal = 0;
  for (const int number : signals) {
    Before before{number, {}};
    if (::sigaction(number, &action, &before.action) < 0) {
      restore();
      throw UsageError(fmt::format("signal {} cannot be caught.", number));
    }
    before_.push_back(before);
  }
  ++users;
}

StopSignals::~StopSignals() {
  restore();
  --users;
}

int StopSignals::received() noexcept { return first_signal; }

void StopSignals::restore() noexcept {
  for (auto entry = before_.rbegin(); entry != before_.rend(); ++entry) {
    ::sigaction(entry->signal, &entry->action, nullptr);
  }
  before_.clear();
}

}  // namespace lockstep
