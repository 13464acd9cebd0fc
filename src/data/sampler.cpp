#include "lockstep/data/sampler.hpp"

#include <ATen/core/Tensor.h>

#include <limits>
#include <numeric>

#include "lockstep/core/error.hpp"
#include "permutation.hpp"

namespace lockstep {
namespace {

void check_epoch(std::int64_t epoch) {
  if (epoch < 0) throw UsageError("the epoch must be 0 or more, but is " + std::to_string(epoch) + ".");
}

void check_options(const DistributedSamplerOptions& options) {
  if (options.num_replicas < 1) {
    throw UsageError("DistributedSampler: num_replicas must be 1 or more, but is " +
                     std::to_string(options.num_replicas) + ".");
  }
  if (options.rank < 0 || options.rank >= options.num_replicas) {
    throw UsageError("DistributedSampler: rank must be from 0 to " +
                     std::to_string(options.num_replicas - 1) + ", but is " + std::to_string(options.rank) +
                     ".");
  }
}

std::int64_t indices_per_rank(std::int64_t length, const DistributedSamplerOptions& options) {
  const bool round_up = !options.drop_last && length % options.num_replicas != 0;
  return length / options.num_replicas + (round_up ? 1 : 0);
}

}  // namespace

Sampler::Sampler(std::int64_t length, std::uint64_t seed) : length_(length), seed_(seed) {
  if (length < 0) {
    throw UsageError("a sampler needs a data set of 0 or more samples, but was told " +
                     std::to_string(length) + ".");
  }
}

std::uint64_t Sampler::epoch_seed(std::int64_t epoch) const {
  check_epoch(epoch);
  const auto step = static_cast<std::uint64_t>(epoch);
  if (seed_ > std::numeric_limits<std::uint64_t>::max() - step) {
    throw UsageError("a sampler's seed " + std::to_string(seed_) + " + epoch " + std::to_string(epoch) +
                     " exceeds 2^64 - 1, the largest seed of a generator. Choose a smaller seed.");
  }
  return seed_ + step;
}

std::vector<std::int64_t> SequentialSampler::epoch_indices(std::int64_t epoch) const {
  check_epoch(epoch);
  std::vector<std::int64_t> order(static_cast<std::size_t>(length()));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

DistributedSampler::DistributedSampler(std::int64_t length, DistributedSamplerOptions options)
    : Sampler(length, options.seed), options_(options) {
  check_options(options_);
  size_ = indices_per_rank(length, options_);
}

std::vector<std::int64_t> DistributedSampler::epoch_indices(std::int64_t epoch) const {
  check_epoch(epoch);
  const auto order = options_.shuffle ? seeded_permutation(length(), epoch_seed(epoch)) : at::Tensor();
  const auto* shuffled = options_.shuffle ? order.const_data_ptr<std::int64_t>() : nullptr;
  std::vector<std::int64_t> mine;
  mine.reserve(static_cast<std::size_t>(size_));
  for (std::int64_t row = 0; row < size_; ++row) {
    // Past the end the order starts again from its beginning: PyTorch's padding.
    const auto place = (options_.rank + row * options_.num_replicas) % length();
    mine.push_back(shuffled ? shuffled[place] : place);
  }
  return mine;
}

std::string DistributedSampler::kind() const {
  return std::string(options_.shuffle ? "random" : "sequential") + " over " +
         std::to_string(options_.num_replicas) + " ranks";
}

}  // namespace lockstep
