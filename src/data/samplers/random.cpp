#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>

#include "../permutation.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/sampler.hpp"

namespace lockstep {
namespace {

using Indices = std::vector<std::int64_t>;

void append(Indices& order, const at::Tensor& drawn, std::int64_t count) {
  const auto* first = drawn.const_data_ptr<std::int64_t>();
  order.insert(order.end(), first, first + count);
}

/// PyTorch draws 32 indices at a time; the generator's state depends on that.
constexpr std::int64_t kDrawnAtOnce = 32;

void append_draws(Indices& order, std::int64_t length, std::int64_t count, const at::Generator& generator) {
  for (std::int64_t left = count; left > 0; left -= kDrawnAtOnce) {
    const auto now = std::min(left, kDrawnAtOnce);
    append(order, at::randint(length, {now}, generator, at::TensorOptions().dtype(at::kLong)), now);
  }
}

void append_permutations(Indices& order, std::int64_t length, std::int64_t count,
                         const at::Generator& generator) {
  for (std::int64_t left = count; left > 0; left -= length) {
    append(order, at::randperm(length, generator, at::TensorOptions().dtype(at::kLong)),
           std::min(left, length));
  }
}

void check_count(const char* sampler, std::int64_t count, std::int64_t most) {
  if (count >= 0 && count <= most) return;
  throw UsageError(std::string(sampler) + ": num_samples is " + std::to_string(count) +
                   ", but must be from 0 to " + std::to_string(most) + " here.");
}

std::int64_t weights_above_zero(const std::vector<double>& weights) {
  std::int64_t above = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]) || weights[i] < 0) {
      throw UsageError("WeightedRandomSampler: weight " + std::to_string(i) + " is " +
                       std::to_string(weights[i]) + ", but must be 0 or more and finite.");
    }
    above += weights[i] > 0 ? 1 : 0;
  }
  return above;
}

}  // namespace

RandomSampler::RandomSampler(std::int64_t length, RandomSamplerOptions options)
    : Sampler(length, options.seed),
      options_(options),
      size_(options.num_samples == 0 ? length : options.num_samples) {
  check_count("RandomSampler", size_, length == 0 ? 0 : INT64_MAX);
}

Indices RandomSampler::epoch_indices(std::int64_t epoch) const {
  const auto generator = at::detail::createCPUGenerator(epoch_seed(epoch));
  Indices order;
  order.reserve(static_cast<std::size_t>(size_));
  if (options_.replacement) {
    append_draws(order, length(), size_, generator);
  } else {
    append_permutations(order, length(), size_, generator);
  }
  return order;
}

WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights, WeightedSamplerOptions options)
    : Sampler(static_cast<std::int64_t>(weights.size()), options.seed),
      weights_(std::move(weights)),
      options_(options),
      size_(options.num_samples == 0 ? length() : options.num_samples) {
  const auto above = weights_above_zero(weights_);
  check_count("WeightedRandomSampler", size_, options.replacement && above > 0 ? INT64_MAX : above);
}

Indices WeightedRandomSampler::epoch_indices(std::int64_t epoch) const {
  const auto generator = at::detail::createCPUGenerator(epoch_seed(epoch));
  if (size_ == 0) return {};
  const auto weights = at::tensor(at::ArrayRef<double>(weights_), at::kDouble);
  Indices order;
  append(order, at::multinomial(weights, size_, options_.replacement, generator).contiguous(), size_);
  return order;
}

SubsetRandomSampler::SubsetRandomSampler(std::int64_t length, Indices indices, std::uint64_t seed)
    : Sampler(length, seed), indices_(std::move(indices)) {
  for (const auto index : indices_) {
    if (index >= 0 && index < length) continue;
    throw UsageError("SubsetRandomSampler: index " + std::to_string(index) +
                     " does not exist: the data set has " + std::to_string(length) + " samples.");
  }
}

Indices SubsetRandomSampler::epoch_indices(std::int64_t epoch) const {
  const auto places = seeded_permutation(size(), epoch_seed(epoch));
  const auto* place = places.const_data_ptr<std::int64_t>();
  Indices order;
  order.reserve(indices_.size());
  for (std::int64_t i = 0; i < size(); ++i) order.push_back(indices_[static_cast<std::size_t>(place[i])]);
  return order;
}

}  // namespace lockstep
