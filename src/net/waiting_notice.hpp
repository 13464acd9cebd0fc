#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace lockstep::net {

/// Says on standard error that this process waits, after 10 s and then every 30 s, as long as it exists:
/// "lockstep: rank 1 has been waiting for 10 s for the name 'node0' (MASTER_ADDR) to resolve". A thread does
/// it, because the waiting one is blocked.
class WaitingNotice {
 public:
  /// `who` is "rank 1", `what` "for the name 'node0' to resolve"; `hint` is a sentence or empty.
  WaitingNotice(const std::string& who, const std::string& what, const std::string& hint = "");
  ~WaitingNotice();
  WaitingNotice(const WaitingNotice&) = delete;
  WaitingNotice& operator=(const WaitingNotice&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ending_;
  bool end_ = false;
  std::thread thread_;
};

}  // namespace lockstep::net
