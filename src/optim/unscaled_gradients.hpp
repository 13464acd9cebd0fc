#pragma once

#include <c10/core/UndefinedTensorImpl.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <vector>

namespace lockstep::optim {

/// Whether any gradient has an element other than 0. Waits for the devices once, and not at all if there are
/// no gradients.
bool have_values(const std::vector<at::Tensor>& gradients);

/// Which gradients of an optimizer were divided by the loss scale already.
///
/// A gradient is known by its tensor and that tensor's version, which every change in place increases. While
/// no newer loss has been scaled, changes are the program's own, such as clipping. After one, a change means
/// that backward added a scaled gradient to an unscaled one, and no factor can mend the sum. An optimizer
/// that has stepped is expected to be cleared, as in PyTorch: its gradients count as unscaled only until the
/// next loss, and while nothing changes them.
class UnscaledGradients {
 public:
  enum class State : std::uint8_t { scaled, unscaled, mixed };

  /// Remembers the optimizer's gradients as unscaled.
  void remember(const torch::optim::Optimizer& optimizer);
  void mark_stepped() noexcept { stepped_ = true; }
  bool has_stepped() const noexcept { return stepped_; }

  /// A newer loss is scaled: from now on, changes of the gradients are those of its backward.
  void loss_was_scaled();
  bool waits_for_step_after_loss() const noexcept { return !stepped_ && newer_loss_; }

  /// Whether all gradients are gone or zero. Waits for their device, unless none has changed since the last
  /// call.
  bool were_cleared();

  /// The state of the gradient of the optimizer's parameter number `index`.
  State state_of(std::size_t index, const at::Tensor& parameter) const;

 private:
  using WeakTensor = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;
  struct Entry {
    WeakTensor parameter;
    /// Of the undefined tensor if the parameter has none.
    WeakTensor gradient;
    std::int64_t version = 0;
  };
  static Entry entry_of(const at::Tensor& parameter);
  void look_again();
  bool unchanged() const;

  std::vector<Entry> entries_;
  bool stepped_ = false;
  bool newer_loss_ = false;
  bool found_uncleared_ = false;
};

}  // namespace lockstep::optim
