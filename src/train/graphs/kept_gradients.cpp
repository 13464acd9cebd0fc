#include "train/graphs/kept_gradients.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_zero.h>

#include <algorithm>
#include <utility>

namespace lockstep::train {
namespace {

std::int64_t version_of(const at::Tensor& gradient) { return gradient.defined() ? gradient._version() : -1; }

}  // namespace

KeptGradients::KeptGradients(std::vector<at::Tensor> parameters)
    : parameters_(std::move(parameters)),
      homes_(parameters_.size()),
      before_(parameters_.size(), nullptr),
      versions_(parameters_.size(), -1),
      changed_(parameters_.size(), false) {}

void KeptGradients::bring_home() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].mutable_grad();
    const at::Tensor& home = homes_[i];
    if (home.defined() && !gradient.is_same(home)) {
      if (!gradient.defined()) {
        home.zero_();
      } else if (!gradient.is_alias_of(home)) {
        home.copy_(gradient);
      }
      gradient = home;
    }
  }
}

void KeptGradients::mark() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& gradient = parameters_[i].grad();
    before_[i] = gradient.unsafeGetTensorImpl();
    versions_[i] = version_of(gradient);
  }
}

std::vector<bool> KeptGradients::find_changed() const {
  std::vector<bool> which(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& gradient = parameters_[i].grad();
    // A reducer puts its own tensor in the place of the one that was there.
    which[i] = gradient.defined() &&
               (gradient.unsafeGetTensorImpl() != before_[i] || version_of(gradient) != versions_[i]);
  }
  return which;
}

void KeptGradients::changed(const std::vector<bool>& which) {
  for (std::size_t i = 0; i < which.size(); ++i) changed_[i] = changed_[i] || which[i];
}

void KeptGradients::hide_unchanged() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!changed_[i]) parameters_[i].mutable_grad().reset();
  }
}

void KeptGradients::clear() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> all;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (changed_[i] && gradient.defined()) homes_[i] = gradient;
    gradient = homes_[i];
    if (gradient.defined()) all.push_back(gradient);
  }
  if (!all.empty()) at::_foreach_zero_(all);
  std::fill(changed_.begin(), changed_.end(), false);
}

void KeptGradients::drop() {
  for (const auto& parameter : parameters_) parameter.mutable_grad().reset();
  std::fill(homes_.begin(), homes_.end(), at::Tensor());
  std::fill(changed_.begin(), changed_.end(), false);
}

}  // namespace lockstep::train
