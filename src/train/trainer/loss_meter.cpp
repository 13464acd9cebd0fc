#include "loss_meter.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::train {
namespace {

/// More than this many scalars on a device are exchanged before anybody asks.
constexpr std::size_t kMostSteps = 256;

/// Where there is nothing to weigh, the sum is 0 too.
constexpr double kSmallestWeight = std::numeric_limits<double>::min();

}  // namespace

void LossMeter::add(const Loss& loss) {
  const at::NoGradGuard no_grad;
  const at::Tensor value = loss.value.detach().to(at::kDouble);
  sum_ = sum_.defined() ? sum_ + value : value;
  weighted_ = loss.weight.has_value();
  weight_ += loss.weight.value_or(0);
  ++micro_batches_;
}

void LossMeter::end_step() {
  // Without weights a step's loss is the mean of its micro-batches, and then of the ranks.
  const double own = weighted_ ? std::max(weight_, kSmallestWeight) : static_cast<double>(micro_batches_);
  const bool shared = weighted_ && weights_of_all_ranks_;
  sums_.push_back((shared ? sum_ : sum_ / own).reshape({1}));
  weights_.push_back(shared ? weight_ : 1.0);
  sum_ = at::Tensor();
  micro_batches_ = 0;
  weight_ = 0;
}

bool LossMeter::is_full() const noexcept { return sums_.size() >= kMostSteps; }

LossMeter::Fold LossMeter::fold() {
  Fold result;
  if (sums_.empty()) return result;
  const at::NoGradGuard no_grad;
  const at::Tensor weights = at::tensor(weights_, at::kDouble).to(sums_.front().device());
  at::Tensor both = accelerator_.reduce(at::stack({at::cat(sums_), weights})).cpu();
  for (std::int64_t step = 0; step < both.size(1); ++step) {
    const double weight = both[1][step].item<double>();
    const double loss = weight > 0 ? both[0][step].item<double>() / weight : 0;
    result.whole_sum += loss;
    ++result.steps;
    if (!std::isfinite(loss)) continue;
    result.sum += loss;
    ++result.finite_steps;
  }
  sums_.clear();
  weights_.clear();
  return result;
}

}  // namespace lockstep::train
