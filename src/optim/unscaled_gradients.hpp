#pragma once

#include <c10/core/UndefinedTensorImpl.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <vector>

namespace lockstep::optim {

/// Whether any gradient has an element other than 0. Waits for the devices once, and not at all if there are
/// no gradients.
bool have_values(const std::vector<at::Tensor>& gradients);

/// Whether all elements are finite. Waits as have_values() does.
bool are_finite(const std::vector<at::Tensor>& gradients);

/// Which gradients of an optimizer were divided by the loss scale already.
///
/// A gradient is known by its tensor and that tensor's version, which every change in place increases. While
/// no newer loss has been scaled, changes are the program's own, such as clipping. After one, a change means
/// that backward added a scaled gradient to an unscaled one, and no factor can mend the sum. An optimizer
/// that has stepped is expected to be cleared, as in PyTorch: its gradients count as unscaled only until the
/// next loss, and while nothing changes them.
///
/// It also knows the scaled ones: those that changed since a loss was scaled. When the scale changes, so must
/// they.
class UnscaledGradients {
 public:
  enum class State : std::uint8_t { scaled, unscaled, mixed };

  /// Knows the optimizer's parameters. Their gradients count as scaled.
  void watch(const torch::optim::Optimizer& optimizer);
  /// Remembers the optimizer's gradients as unscaled.
  void remember(const torch::optim::Optimizer& optimizer);
  /// From now on, all gradients count as scaled.
  void forget() noexcept { remembers_ = stepped_ = newer_loss_ = found_uncleared_ = false; }
  bool remembers() const noexcept { return remembers_; }
  void mark_stepped() noexcept { stepped_ = true; }
  bool has_stepped() const noexcept { return stepped_; }

  /// A newer loss is scaled: from now on, changes of the gradients are those of its backward.
  void loss_was_scaled();
  bool waits_for_step_after_loss() const noexcept { return remembers_ && !stepped_ && newer_loss_; }

  /// Whether all gradients are gone or zero. Waits for their device, unless none has changed since the last
  /// call.
  bool were_cleared();

  /// The state of the gradient of the optimizer's parameter number `index`.
  State state_of(std::size_t index, const at::Tensor& parameter) const;

  /// The scaled gradients: backward has changed them since the first newer loss.
  std::vector<at::Tensor> scaled() const;

 private:
  using WeakTensor = c10::weak_intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>;
  struct Entry {
    WeakTensor parameter;
    /// Of the undefined tensor if the parameter has none.
    WeakTensor gradient;
    std::int64_t version = 0;
  };
  static Entry entry_of(const at::Tensor& parameter);
  static bool is_unchanged(const Entry& entry, const at::Tensor& parameter);
  void look_again();
  bool unchanged() const;

  std::vector<Entry> entries_;
  bool remembers_ = false;
  bool stepped_ = false;
  bool newer_loss_ = false;
  bool found_uncleared_ = false;
};

}  // namespace lockstep::optim
