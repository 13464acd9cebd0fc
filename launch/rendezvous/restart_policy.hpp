#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::launch {

/// Whether and when a job that failed is started anew. Attempts that lived less than 10 s are followed by a
/// pause that doubles, up to 30 s. After three attempts in a row without progress it is given up though
/// restarts are left: progress is a step beyond all earlier ones, or a life of more than a minute. Programs
/// without a heartbeat show no progress, so for them the number of restarts alone decides, as with torchrun.
/// Knows no clock: the caller measures.
class RestartPolicy {
 public:
  /// `backoff` is the first pause; 0: there are none, and the number of restarts alone decides.
  RestartPolicy(int max_restarts, std::chrono::milliseconds backoff);

  struct Decision {
    bool again = false;
    std::chrono::milliseconds pause{0};
    /// Why it is given up though restarts are left; else empty.
    std::string reason;
  };
  /// One call for each attempt that failed; `step` is the most steps that a rank had done, nothing for
  /// programs without a heartbeat.
  Decision after(std::chrono::milliseconds lived, std::optional<std::uint64_t> step);
  /// How many restarts were decided for.
  int used() const noexcept { return used_; }

 private:
  int left_;
  int used_ = 0;
  std::chrono::milliseconds backoff_;
  std::chrono::milliseconds next_pause_;
  std::uint64_t best_step_ = 0;
  int fruitless_ = 0;
};

}  // namespace lockstep::launch
