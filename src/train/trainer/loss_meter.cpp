#include "train/trainer/loss_meter.hpp"

#include <ATen/ATen.h>

#include <limits>

namespace lockstep::train {
namespace {

/// Number of pending steps after which fold() is called, to bound the scalars kept on a device.
constexpr std::size_t kMostSteps = 256;

/// A total weight of 0 has a sum of 0.
constexpr double kSmallestWeight = std::numeric_limits<double>::min();

double mean_of(double sum, double weight) { return weight > 0 ? sum / weight : 0; }

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

bool LossMeter::is_full() const noexcept { return sums_.size() + shared_.size() >= kMostSteps; }

std::vector<double> LossMeter::share_step(const std::vector<double>& counts) {
  const at::NoGradGuard no_grad;
  const at::Tensor own = at::tensor(counts, at::kDouble).to(sums_.back().device());
  const at::Tensor all = accelerator_.reduce(at::cat({sums_.back(), weights_.back(), own})).cpu();
  sums_.pop_back();
  weights_.pop_back();
  const auto* const values = all.const_data_ptr<double>();
  shared_.push_back(mean_of(values[0], values[1]));
  return {values + 2, values + all.numel()};
}

void LossMeter::set_shared_losses(std::vector<double> losses) {
  discard_step();
  sums_.clear();
  weights_.clear();
  shared_ = std::move(losses);
}

std::vector<double> LossMeter::fold() {
  std::vector<double> losses = std::exchange(shared_, {});
  if (sums_.empty()) return losses;
  const at::NoGradGuard no_grad;
  at::Tensor both = accelerator_.reduce(at::stack({at::cat(sums_), at::cat(weights_)})).cpu();
  for (std::int64_t step = 0; step < both.size(1); ++step) {
    losses.push_back(mean_of(both[0][step].item<double>(), both[1][step].item<double>()));
  }
  sums_.clear();
  weights_.clear();
  return losses;
}

}  // namespace lockstep::train
