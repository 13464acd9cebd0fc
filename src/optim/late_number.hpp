#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <optional>

namespace lockstep::optim {

/// A number of the device on its way to the host: a later get() waits for what the device was given before
/// this was made, and not for what it was given since. In a recorded step the number has no way to the host
/// of its own, and each get() reads what the last replay left.
class LateNumber {
 public:
  /// A tensor of one element, of any device.
  explicit LateNumber(const at::Tensor& number);

  bool has_arrived() const;
  bool is_recorded() const noexcept { return is_recorded_; }
  double get();

 private:
  at::Tensor number_;
  bool is_recorded_ = false;
  /// Page-locked memory, and the end of the copy into it.
  at::Tensor host_;
  std::optional<c10::Event> copied_;
};

}  // namespace lockstep::optim
