#include "gradient_check.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "lockstep/core/error.hpp"

namespace lockstep::parallel {
namespace {

constexpr std::int64_t kRankUnit = std::int64_t{1} << 32;

/// A finite sum proves all of them finite; another one may be an overflow, and is looked at again.
bool all_finite(const at::Tensor& gradients) {
  return std::isfinite(gradients.sum().item<double>()) || at::isfinite(gradients).all().item<bool>();
}

}  // namespace

GradientCheck::GradientCheck(const ProcessGroup& group, const std::vector<NamedTensor>& parameters,
                             NonFiniteGradients policy)
    : group_(group), policy_(policy) {
  for (const auto& entry : parameters) {
    numbers_.emplace(entry.tensor.unsafeGetTensorImpl(), static_cast<std::int64_t>(names_.size()));
    names_.push_back(entry.name);
  }
}

/// The largest number wins: of the lowest rank, the parameter that was registered first. 0 means nothing.
void GradientCheck::look(const GradientBucket& bucket) {
  if (bucket.index == 0) finding_ = 0;
  if (!all_finite(bucket.buffer)) {
    for (std::size_t i = 0; i < bucket.gradients.size(); ++i) {
      if (all_finite(bucket.gradients[i])) continue;
      const auto number = numbers_.at(bucket.parameters[i].unsafeGetTensorImpl());
      finding_ = std::max(finding_, (group_.size() - group_.rank()) * kRankUnit +
                                        static_cast<std::int64_t>(names_.size()) - number);
    }
  }
  if (!bucket.is_last) return;
  ++backwards_;
  findings_ = at::full({1}, finding_, at::TensorOptions(group_.object_device()).dtype(at::kLong));
  sent_ = group_.all_reduce_async(findings_, ReduceOp::max);
}

std::string GradientCheck::describe(std::int64_t finding) const {
  const std::int64_t rank = group_.size() - finding / kRankUnit;
  const auto number =
      static_cast<std::size_t>(static_cast<std::int64_t>(names_.size()) - finding % kRankUnit);
  return "the gradient of '" + names_.at(number) + "' on rank " + std::to_string(rank) +
         " is not finite (NaN or infinity) in backward " + std::to_string(backwards_);
}

bool GradientCheck::conclude() {
  if (!sent_) return false;
  sent_->wait();
  sent_.reset();
  const std::int64_t finding = findings_.item<std::int64_t>();
  if (finding == 0) return false;
  const std::string text = describe(finding);
  if (policy_ == NonFiniteGradients::error) {
    throw Error("rank " + std::to_string(group_.rank()) + " of " + std::to_string(group_.size()) + ": " +
                text + ". Lower the learning rate, look at that rank's batch, or let such steps be skipped");
  }
  const bool skips = policy_ == NonFiniteGradients::skip;
  if (group_.rank() == 0) {
    std::cerr << "lockstep: warning: " + text + (skips ? ": this step is skipped on all ranks\n" : "\n")
              << std::flush;
  }
  return skips;
}

}  // namespace lockstep::parallel
