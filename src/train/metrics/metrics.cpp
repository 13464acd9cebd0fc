#include <fmt/core.h>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/train/metrics.hpp"
#include "train/metrics/check_seen.hpp"

namespace lockstep::metrics {

void Accuracy::update(std::int64_t correct, std::int64_t samples) {
  if (correct < 0 || correct > samples) {
    throw UsageError(
        fmt::format("Accuracy: {} right answers of {} samples are impossible.", correct, samples));
  }
  correct_ += correct;
  samples_ += samples;
}

double Accuracy::compute() const {
  check_seen("Accuracy", samples_);
  return static_cast<double>(correct_) / static_cast<double>(samples_);
}

void Perplexity::update(double loss_sum, std::int64_t tokens) {
  if (tokens < 0) throw UsageError(fmt::format("Perplexity: {} tokens are impossible.", tokens));
  loss_sum_ += loss_sum;
  tokens_ += tokens;
}

double Perplexity::loss() const {
  check_seen("Perplexity", tokens_);
  return loss_sum_ / static_cast<double>(tokens_);
}

double Perplexity::compute() const { return std::exp(loss()); }

namespace {

using Counts = std::vector<std::int64_t>;

double total(const Counts& counts) {
  return static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
}

double dot(const Counts& one, const Counts& other) {
  double sum = 0;
  for (std::size_t i = 0; i < one.size(); ++i)
    sum += static_cast<double>(one[i]) * static_cast<double>(other[i]);
  return sum;
}

void check_class(const char* what, std::int64_t number, std::size_t place, std::size_t classes) {
  if (number >= 0 && static_cast<std::size_t>(number) < classes) return;
  throw DataError(fmt::format("Classification: {} {} of sample {} is not a class: expected 0 to {}.", what,
                              number, place, classes - 1));
}

/// A weighted mean that leaves out NaN.
class Mean {
 public:
  void add(double value, double weight) {
    if (std::isnan(value)) return;
    weighted_ += value * weight;
    weights_ += weight;
    sum_ += value;
    ++count_;
  }
  double value() const { return weights_ == 0 ? sum_ / count_ : weighted_ / weights_; }

 private:
  double weighted_ = 0;
  double weights_ = 0;
  double sum_ = 0;
  double count_ = 0;
};

}  // namespace

struct Classification::Shares {
  double precision, recall, f1;
};

Classification::Classification(std::int64_t num_classes) {
  if (num_classes < 2) {
    throw UsageError(fmt::format("Classification: expected two classes or more, but got {}.", num_classes));
  }
  for (auto* counts : {&hits_, &predicted_, &actual_}) counts->resize(static_cast<std::size_t>(num_classes));
}

void Classification::update(std::span<const std::int64_t> predictions, std::span<const std::int64_t> labels) {
  if (predictions.size() != labels.size()) {
    throw UsageError(
        fmt::format("Classification: {} predictions for {} labels.", predictions.size(), labels.size()));
  }
  // All classes are checked before any is counted, so that a rejected batch changes nothing.
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] == kIgnoredLabel) continue;
    check_class("label", labels[i], i, hits_.size());
    check_class("prediction", predictions[i], i, hits_.size());
  }
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] == kIgnoredLabel) continue;
    const auto label = static_cast<std::size_t>(labels[i]);
    const auto prediction = static_cast<std::size_t>(predictions[i]);
    ++actual_[label];
    ++predicted_[prediction];
    if (label == prediction) ++hits_[label];
  }
}

std::int64_t Classification::samples() const { return static_cast<std::int64_t>(total(actual_)); }

double Classification::accuracy() const {
  check_seen("Classification", samples());
  return total(hits_) / total(actual_);
}

Classification::Shares Classification::shares_of(std::int64_t hits, std::int64_t predicted,
                                                 std::int64_t actual, double zero_division) const {
  const auto share = [&](std::int64_t part, std::int64_t whole) {
    return whole == 0 ? zero_division : static_cast<double>(part) / static_cast<double>(whole);
  };
  return {share(hits, predicted), share(hits, actual), share(2 * hits, predicted + actual)};
}

double Classification::mean_over_classes(const ScoreOptions& options, double Shares::*which) const {
  Mean mean;
  for (std::size_t i = 0; i < hits_.size(); ++i) {
    if (predicted_[i] + actual_[i] == 0) continue;
    const double weight = options.average == Average::weighted ? static_cast<double>(actual_[i]) : 1;
    mean.add(shares_of(hits_[i], predicted_[i], actual_[i], options.zero_division).*which, weight);
  }
  return mean.value();
}

double Classification::score(const ScoreOptions& options, double Shares::*which) const {
  check_seen("Classification", samples());
  if (options.average == Average::micro) {
    const std::int64_t all = samples();
    return shares_of(static_cast<std::int64_t>(total(hits_)), all, all, options.zero_division).*which;
  }
  if (options.average != Average::binary) return mean_over_classes(options, which);
  if (hits_.size() != 2) {
    throw UsageError(
        fmt::format("Classification: Average::binary is for two classes, but there are {}: choose micro, "
                    "macro or weighted.",
                    hits_.size()));
  }
  return shares_of(hits_[1], predicted_[1], actual_[1], options.zero_division).*which;
}

double Classification::precision(const ScoreOptions& options) const {
  return score(options, &Shares::precision);
}
double Classification::recall(const ScoreOptions& options) const { return score(options, &Shares::recall); }
double Classification::f1(const ScoreOptions& options) const { return score(options, &Shares::f1); }

/// Gorodkin's (2004) correlation of K classes, computed from the three counts.
std::vector<double> Classification::values() const {
  return {accuracy(), f1({.average = hits_.size() == 2 ? Average::binary : Average::macro})};
}

double Classification::matthews() const {
  check_seen("Classification", samples());
  const double all = total(actual_);
  const double both = total(hits_) * all - dot(actual_, predicted_);
  const double spread = (all * all - dot(predicted_, predicted_)) * (all * all - dot(actual_, actual_));
  return spread == 0 ? 0 : both / std::sqrt(spread);
}

}  // namespace lockstep::metrics
