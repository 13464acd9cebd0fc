#include "parallel/gradient_check.hpp"

#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "lockstep/core/error.hpp"

namespace lockstep::parallel {
namespace {

constexpr std::int64_t kRankUnit = std::int64_t{1} << 32;

/// A finite sum proves that all are finite; otherwise the sum may have overflowed, so each is checked.
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

/// All ranks must report the same finding, though each may have several or none, and must exchange no more
/// than one integer each. So a finding is packed into a word, whose maximum over all ranks is reported:
///
///     63              32 31               0
///     [ ranks - rank    | names - number  ]      0: no finding
///
/// Both halves are 1 or more, and larger for lower ranks and for parameters that were registered earlier: the
/// maximum is the first bad parameter of the lowest rank that has one, whatever the order in which buckets
/// become ready. The all-reduce of the word starts with the last bucket and overlaps with that bucket's own;
/// conclude() waits for it after backward, and describe() unpacks it.
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
  return fmt::format("the gradient of '{}' on rank {} is not finite (NaN or infinity) in backward {}",
                     names_.at(number), rank, backwards_);
}

bool GradientCheck::conclude() {
  if (!sent_) return false;
  sent_->wait();
  sent_.reset();
  const std::int64_t finding = findings_.item<std::int64_t>();
  if (finding == 0) return false;
  const std::string text = describe(finding);
  if (policy_ == NonFiniteGradients::error) {
    throw Error(fmt::format(
        "rank {} of {}: {}. Lower the learning rate, look at that rank's batch, or let such steps be skipped",
        group_.rank(), group_.size(), text));
  }
  const bool skips = policy_ == NonFiniteGradients::skip;
  if (group_.rank() == 0) {
    std::cerr << "lockstep: warning: " + text + (skips ? ": this step is skipped on all ranks\n" : "\n")
              << std::flush;
  }
  return skips;
}

}  // namespace lockstep::parallel
