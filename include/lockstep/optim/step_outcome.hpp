#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace lockstep::optim {

/// Internal: a number of the device on its way to the host.
class LateNumber;

/// Whether a step was made or left out. On a GPU the device knows it first: the host waits for it where the
/// outcome is read, and only there. Copies share it. One thread at a time.
class StepOutcome {
 public:
  /// Known to the host.
  StepOutcome(bool stepped = true) : stepped_(stepped) {}  // NOLINT(google-explicit-constructor)

  /// Internal: on the device, where `found_inf` is not 0 if the step was left out. Of a step that is recorded
  /// as a CUDA graph it is the outcome of the last replay when it is read.
  static StepOutcome of(const at::Tensor& found_inf);

  /// Waits until the step's device knows.
  bool stepped() const;
  operator bool() const { return stepped(); }  // NOLINT(google-explicit-constructor)

  /// Whether stepped() may wait.
  bool is_late() const noexcept { return late_ != nullptr; }

 private:
  bool stepped_;
  std::shared_ptr<LateNumber> late_;
};

}  // namespace lockstep::optim
