#include "rendezvous/restart_policy.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kShortLife = std::chrono::seconds(10);
constexpr milliseconds kLongLife = std::chrono::minutes(1);
constexpr milliseconds kLongestPause = std::chrono::seconds(30);
constexpr int kMostFruitless = 3;

}  // namespace

RestartPolicy::RestartPolicy(int max_restarts, milliseconds backoff)
    : left_(max_restarts), backoff_(backoff), next_pause_(backoff) {}

RestartPolicy::Decision RestartPolicy::after(milliseconds lived, std::optional<std::uint64_t> step) {
  const bool progressed = step.value_or(0) > best_step_ || lived > kLongLife;
  best_step_ = std::max(best_step_, step.value_or(0));
  if (progressed) fruitless_ = 0;
  if (!progressed && step) ++fruitless_;
  if (left_ == 0) return {};
  if (backoff_.count() > 0 && fruitless_ >= kMostFruitless) {
    return {
        false, milliseconds(0),
        fmt::format("{} attempts in a row got no further than step {}: the job is not restarted, although "
                    "{} restart(s) are left",
                    fruitless_, best_step_, left_)};
  }
  --left_;
  ++used_;
  return {true, pause_after(lived), ""};
}

milliseconds RestartPolicy::pause_after(milliseconds lived) {
  const bool short_life = lived < kShortLife;
  const milliseconds pause = short_life ? std::min(next_pause_, kLongestPause) : milliseconds(0);
  next_pause_ = short_life ? std::min(next_pause_ * 2, kLongestPause) : backoff_;
  return pause;
}

}  // namespace lockstep::launch
