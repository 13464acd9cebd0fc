#pragma once

#include <ATen/autocast_mode.h>

#include <array>

namespace lockstep::parallel {

/// The current autocast state of this thread.
class AutocastState {
 public:
  void set() const {
    for (const auto& [device, on, dtype] : devices_) {
      at::autocast::set_autocast_enabled(device, on);
      at::autocast::set_autocast_dtype(device, dtype);
    }
    at::autocast::set_autocast_cache_enabled(cache_);
  }

 private:
  struct Device {
    at::DeviceType type;
    bool on;
    at::ScalarType dtype;
  };
  static Device state_of(at::DeviceType type) {
    return {type, at::autocast::is_autocast_enabled(type), at::autocast::get_autocast_dtype(type)};
  }
  std::array<Device, 2> devices_{state_of(at::kCPU), state_of(at::kCUDA)};
  bool cache_ = at::autocast::is_autocast_cache_enabled();
};

/// Sets this thread's autocast state to a given one, and back at its end.
class AutocastScope {
 public:
  explicit AutocastScope(const AutocastState& state) {
    state.set();
    at::autocast::increment_nesting();
  }
  ~AutocastScope() {
    // Weights that were cast for the recomputation are not kept for later operations.
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    before_.set();
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  AutocastState before_;
};

}  // namespace lockstep::parallel
