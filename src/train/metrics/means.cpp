#include <cmath>
#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/train/metrics.hpp"
#include "train/metrics/checks.hpp"

namespace lockstep::metrics {

void Accuracy::update(std::int64_t correct, std::int64_t samples) {
  if (correct < 0 || correct > samples) {
    throw UsageError("Accuracy: " + std::to_string(correct) + " right answers of " + std::to_string(samples) +
                     " samples cannot be.");
  }
  correct_ += correct;
  samples_ += samples;
}

double Accuracy::compute() const {
  check_seen("Accuracy", samples_);
  return static_cast<double>(correct_) / static_cast<double>(samples_);
}

void Perplexity::update(double loss_sum, std::int64_t tokens) {
  if (tokens < 0) throw UsageError("Perplexity: " + std::to_string(tokens) + " tokens cannot be.");
  loss_sum_ += loss_sum;
  tokens_ += tokens;
}

double Perplexity::loss() const {
  check_seen("Perplexity", tokens_);
  return loss_sum_ / static_cast<double>(tokens_);
}

double Perplexity::compute() const { return std::exp(loss()); }

}  // namespace lockstep::metrics
