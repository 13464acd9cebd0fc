#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::launch {

/// Whether and when a failed job is restarted. After an attempt that lasted less than 10 s there is a pause,
/// which doubles each time, up to 30 s. After three attempts in a row without progress, no restart follows
/// even if some are left. Progress is a step beyond those of all previous attempts, or an attempt that lasted
/// more than a minute. Programs without a heartbeat show no progress: for them only the number of restarts
/// counts, as with torchrun. Has no clock: the caller measures times.
class RestartPolicy {
 public:
  /// `backoff` is the first pause; 0: no pauses, and only the number of restarts counts.
  RestartPolicy(int max_restarts, std::chrono::milliseconds backoff);

  struct Decision {
    bool again = false;
    std::chrono::milliseconds pause{0};
    /// Why there is no restart although some are left; otherwise empty.
    std::string reason;
  };
  /// To be called once per failed attempt. `step` is the largest number of steps that a rank has completed;
  /// nullopt for programs without a heartbeat.
  Decision after(std::chrono::milliseconds lived, std::optional<std::uint64_t> step);
  /// The pause after an attempt that ended because a node was lost that the job can do without: such a
  /// restart is not counted.
  std::chrono::milliseconds pause_after(std::chrono::milliseconds lived);
  /// How many restarts were granted.
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
