#include "net/waiting_notice.hpp"

#include <fmt/core.h>

#include <iostream>

#include "core/runtime/signal_free_thread.hpp"

namespace lockstep::net {

WaitingNotice::WaitingNotice(const std::string& who, const std::string& what, const std::string& hint) {
  thread_ = signal_free_thread([this, who, what, hint] {
    constexpr std::chrono::seconds kFirst{10}, kInterval{30};
    std::chrono::seconds waited{0};
    std::unique_lock lock(mutex_);
    for (auto pause = kFirst; !ending_.wait_for(lock, pause, [this] { return end_; }); pause = kInterval) {
      waited += pause;
      std::cerr << fmt::format("lockstep: {} has been waiting for {} s {}.{}{}\n", who, waited.count(), what,
                               hint.empty() ? "" : " ", hint)
                << std::flush;
    }
  });
}

WaitingNotice::~WaitingNotice() {
  {
    const std::lock_guard lock(mutex_);
    end_ = true;
  }
  ending_.notify_one();
  thread_.join();
}

}  // namespace lockstep::net
