#include <fmt/core.h>

#include <cmath>
#include <limits>

#include "lockstep/core/error.hpp"
#include "lockstep/train/metrics.hpp"
#include "train/metrics/check_seen.hpp"

namespace lockstep::metrics {
namespace {

/// The unweighted mean of a value over all outputs.
template <class Outputs, class Reading>
double mean_of(const Outputs& outputs, const Reading& reading) {
  double sum = 0;
  for (const auto& output : outputs) sum += reading(output);
  return sum / static_cast<double>(outputs.size());
}

}  // namespace

Regression::Regression(std::int64_t outputs) {
  if (outputs < 1)
    throw UsageError(fmt::format("Regression: expected one output or more, but got {}.", outputs));
  outputs_.resize(static_cast<std::size_t>(outputs));
}

void Regression::update(std::span<const double> predictions, std::span<const double> targets) {
  if (predictions.size() != targets.size() || targets.size() % outputs_.size() != 0) {
    throw UsageError(fmt::format("Regression: {} predictions for {} targets of {} output(s) each.",
                                 predictions.size(), targets.size(), outputs_.size()));
  }
  for (std::size_t i = 0; i < targets.size(); ++i) {
    Output& output = outputs_[i % outputs_.size()];
    if (i % outputs_.size() == 0) ++samples_;
    const double error = targets[i] - predictions[i];
    output.squared += error * error;
    output.absolute += std::abs(error);
    // Welford's update of the mean and the sum of squared deviations.
    const double before = targets[i] - output.mean;
    output.mean += before / samples_;
    output.spread += before * (targets[i] - output.mean);
  }
}

/// Chan's rule for merging two means and sums of squared deviations; exact if the means are equal.
void Regression::merge(std::span<const double> state) {
  const double more = state[0];
  if (more == 0) return;
  const double all = samples_ + more;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    Output& output = outputs_[i];
    const auto other = state.subspan(1 + 4 * i, 4);
    const double apart = other[2] - output.mean;
    output.squared += other[0];
    output.absolute += other[1];
    output.mean += samples_ == 0 ? apart : apart * more / all;
    output.spread += other[3] + (samples_ == 0 ? 0 : apart * apart * samples_ * more / all);
  }
  samples_ = all;
}

void Regression::check() const { check_seen("Regression", samples()); }

double Regression::mse() const {
  check();
  return mean_of(outputs_, [this](const Output& output) { return output.squared / samples_; });
}

double Regression::rmse() const {
  check();
  return mean_of(outputs_, [this](const Output& output) { return std::sqrt(output.squared / samples_); });
}

double Regression::mae() const {
  check();
  return mean_of(outputs_, [this](const Output& output) { return output.absolute / samples_; });
}

double Regression::r2() const {
  check();
  if (samples_ < 2) return std::numeric_limits<double>::quiet_NaN();
  return mean_of(outputs_, [](const Output& output) {
    if (output.spread == 0) return output.squared == 0 ? 1.0 : 0.0;
    return 1 - output.squared / output.spread;
  });
}

}  // namespace lockstep::metrics
