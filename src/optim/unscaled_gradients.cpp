#include "optim/unscaled_gradients.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>

namespace lockstep::optim {
namespace {

std::int64_t version_of(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_inference() ? tensor._version() : 0;
}

bool any_of_all(const std::vector<at::Tensor>& gradients,
                const std::function<at::Tensor(const at::Tensor&)>& find) {
  at::Tensor any;
  for (const auto& gradient : gradients) {
    const at::Tensor here = find(gradient.is_sparse() ? gradient._values() : gradient);
    any = any.defined() ? any.logical_or(here.to(any.device())) : here;
  }
  return any.defined() && any.item<bool>();
}

}  // namespace

bool have_values(const std::vector<at::Tensor>& gradients) {
  return any_of_all(gradients, [](const at::Tensor& values) { return values.any(); });
}

bool are_finite(const std::vector<at::Tensor>& gradients) {
  return !any_of_all(gradients,
                     [](const at::Tensor& values) { return values.isfinite().logical_not().any(); });
}

UnscaledGradients::Entry UnscaledGradients::entry_of(const at::Tensor& parameter) {
  const at::Tensor gradient = parameter.grad();
  return {WeakTensor(parameter.getIntrusivePtr()), WeakTensor(gradient.getIntrusivePtr()),
          version_of(gradient)};
}

void UnscaledGradients::watch(const torch::optim::Optimizer& optimizer) {
  entries_.clear();
  forget();
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& parameter : group.params()) entries_.push_back(entry_of(parameter));
  }
}

void UnscaledGradients::remember(const torch::optim::Optimizer& optimizer) {
  watch(optimizer);
  remembers_ = true;
}

/// The parameters that still exist, with the gradients that they have now.
void UnscaledGradients::look_again() {
  for (auto& entry : entries_) {
    const at::Tensor parameter(entry.parameter.lock());
    if (parameter.defined()) entry = entry_of(parameter);
  }
}

void UnscaledGradients::loss_was_scaled() {
  // Not again: what the first such loss has changed stays mixed.
  if (!newer_loss_) look_again();
  newer_loss_ = true;
}

bool UnscaledGradients::unchanged() const {
  return std::all_of(entries_.begin(), entries_.end(), [](const Entry& entry) {
    const at::Tensor parameter(entry.parameter.lock());
    return !parameter.defined() || is_unchanged(entry, parameter);
  });
}

bool UnscaledGradients::is_unchanged(const Entry& entry, const at::Tensor& parameter) {
  const at::Tensor gradient = parameter.grad();
  return gradient.unsafeGetTensorImpl() == entry.gradient._unsafe_get_target() &&
         version_of(gradient) == entry.version;
}

bool UnscaledGradients::were_cleared() {
  const at::NoGradGuard no_grad;
  if (found_uncleared_ && unchanged()) return false;
  std::vector<at::Tensor> gradients;
  for (const auto& entry : entries_) {
    const at::Tensor parameter(entry.parameter.lock());
    if (parameter.defined() && parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  found_uncleared_ = have_values(gradients);
  if (found_uncleared_ && !newer_loss_) look_again();
  return !found_uncleared_;
}

UnscaledGradients::State UnscaledGradients::state_of(std::size_t index, const at::Tensor& parameter) const {
  if (!remembers_ || index >= entries_.size()) return State::scaled;
  const Entry& entry = entries_[index];
  const at::TensorImpl* const before = entry.gradient._unsafe_get_target();
  const bool known = entry.parameter._unsafe_get_target() == parameter.unsafeGetTensorImpl() &&
                     before != at::UndefinedTensorImpl::singleton();
  if (!known) return State::scaled;
  const at::Tensor gradient = parameter.grad();
  const bool same = gradient.unsafeGetTensorImpl() == before;
  if (same && version_of(gradient) == entry.version) return State::unscaled;
  if (waits_for_step_after_loss()) return State::mixed;
  return same && !stepped_ ? State::unscaled : State::scaled;
}

std::vector<at::Tensor> UnscaledGradients::scaled() const {
  std::vector<at::Tensor> result;
  if (!newer_loss_) return result;
  for (const auto& entry : entries_) {
    const at::Tensor parameter(entry.parameter.lock());
    if (!parameter.defined() || !parameter.grad().defined() || is_unchanged(entry, parameter)) continue;
    // With an earlier unscaled gradient it is a mixture.
    const bool alone = entry.gradient._unsafe_get_target() == at::UndefinedTensorImpl::singleton();
    if (alone || !waits_for_step_after_loss()) result.push_back(parameter.grad());
  }
  return result;
}

}  // namespace lockstep::optim
