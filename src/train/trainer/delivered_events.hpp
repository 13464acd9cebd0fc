#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/train/trainer_state.hpp"

namespace lockstep::train {

/// What the callbacks of this process have heard between a committed step and the next one: its end, logs,
/// evaluations, checkpoints. After a lost rank was replaced, the training passes through the same events
/// again. Callbacks print, count and write, so they hear of each once: the second time only what they have
/// left in the control is put back. What belongs to a step that is computed again they hear again. *Local*.
class DeliveredEvents {
 public:
  /// What follows the commit of `step` begins, perhaps again.
  void begin(std::int64_t step) {
    if (step != step_) controls_.clear();
    step_ = step;
    next_ = 0;
    is_on_ = true;
  }
  /// The next step begins.
  void end() noexcept { is_on_ = false; }

  /// Calls the callbacks by `call`, unless they have heard of this event. `call` is told whether the event is
  /// one that a recovery does not repeat.
  template <class Call>
  void deliver(TrainerControl& control, const Call& call) {
    if (!is_on_) return call(false);
    if (next_ < controls_.size()) {
      control = controls_[next_++];
      return;
    }
    is_on_ = false;  // What callbacks cause is part of this event.
    try {
      call(true);
    } catch (...) {
      is_on_ = true;
      throw;
    }
    is_on_ = true;
    controls_.push_back(control);
    ++next_;
  }

 private:
  std::int64_t step_ = -1;
  bool is_on_ = false;
  std::size_t next_ = 0;
  /// After each event.
  std::vector<TrainerControl> controls_;
};

}  // namespace lockstep::train
