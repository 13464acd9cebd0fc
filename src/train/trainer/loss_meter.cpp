#include "train/trainer/loss_meter.hpp"

#include <ATen/ATen.h>

#include <limits>

namespace lockstep::train {
namespace {

/// Number of pending steps after which fold() is called, to bound the scalars kept on a device.
constexpr std::size_t kMostSteps = 256;

/// A total weight of 0 has a sum of 0.
constexpr double kSmallestWeight = std::numeric_limits<double>::min();

}  // namespace

void LossMeter::add(const Loss& loss) {
  const at::NoGradGuard no_grad;
  const at::Tensor value = loss.value.detach().to(at::kDouble);
  sum_ = sum_.defined() ? sum_ + value : value;
  weighted_ = loss.weight.has_value();
  if (weighted_) {
    const at::Tensor weight = loss.weight->tensor().detach().to(at::kDouble).reshape({});
    weight_ = weight_.defined() ? weight_ + weight : weight;
  }
  ++micro_batches_;
}

void LossMeter::end_step() {
  // Without weights, a step's loss is the mean over its micro-batches, then over the ranks.
  const bool shared = weighted_ && weights_of_all_ranks_;
  // Without waiting for the device.
  if (weighted_) weight_ = weight_.to(sum_.device(), /*non_blocking=*/true);
  if (weighted_ && !shared) sum_ = sum_ / weight_.clamp_min(kSmallestWeight);
  if (!weighted_) sum_ = sum_ / static_cast<double>(micro_batches_);
  sums_.push_back(sum_.reshape({1}));
  weights_.push_back(shared ? weight_.reshape({1}) : at::ones({1}, sum_.options()));
  discard_step();
}

void LossMeter::discard_step() {
  sum_ = weight_ = at::Tensor();
  micro_batches_ = 0;
}

bool LossMeter::is_full() const noexcept { return sums_.size() >= kMostSteps; }

std::vector<double> LossMeter::fold() {
  std::vector<double> losses;
  if (sums_.empty()) return losses;
  const at::NoGradGuard no_grad;
  at::Tensor both = accelerator_.reduce(at::stack({at::cat(sums_), at::cat(weights_)})).cpu();
  for (std::int64_t step = 0; step < both.size(1); ++step) {
    const double weight = both[1][step].item<double>();
    losses.push_back(weight > 0 ? both[0][step].item<double>() / weight : 0);
  }
  sums_.clear();
  weights_.clear();
  return losses;
}

}  // namespace lockstep::train
