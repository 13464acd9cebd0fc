#include "lockstep/data/sampler.hpp"

#include <ATen/ATen.h>

#include <limits>
#include <string>

#include "lockstep/core/error.hpp"
#include "permutation.hpp"

namespace lockstep {
namespace {

void check_epoch(std::int64_t epoch) {
  if (epoch < 0) throw UsageError("the epoch must be 0 or more, but is " + std::to_string(epoch) + ".");
}

std::string refusal(const std::string& what, const std::string& saved, const std::string& here) {
  return "the saved sampler position belongs to another order: its " + what + " is " + saved +
         ", this sampler's is " + here +
         ". Continue with the same data set and seed, or start the epoch anew.";
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

std::uint64_t epoch_seed(std::uint64_t seed, std::int64_t epoch) {
  const auto step = static_cast<std::uint64_t>(epoch);
  if (seed > std::numeric_limits<std::uint64_t>::max() - step) {
    throw UsageError("DistributedSampler: seed " + std::to_string(seed) + " + epoch " +
                     std::to_string(epoch) +
                     " exceeds 2^64 - 1, the largest seed of a generator. Choose a smaller seed.");
  }
  return seed + step;
}

}  // namespace

Sampler::Sampler(std::int64_t length, std::uint64_t seed) : length_(length), seed_(seed) {
  if (length < 0) {
    throw UsageError("a sampler needs a data set of 0 or more samples, but was told " +
                     std::to_string(length) + ".");
  }
}

std::vector<std::int64_t> Sampler::remaining() const {
  auto left = indices();
  left.erase(left.begin(), left.begin() + position_);
  return left;
}

void Sampler::set_epoch(std::int64_t epoch) {
  check_epoch(epoch);
  if (epoch != epoch_) position_ = 0;
  epoch_ = epoch;
}

void Sampler::advance(std::int64_t count) {
  if (count < 0 || count > size() - position_) {
    throw UsageError("a sampler at position " + std::to_string(position_) + " of " + std::to_string(size()) +
                     " cannot advance by " + std::to_string(count) + " samples.");
  }
  position_ += count;
}

void Sampler::load_state(const SamplerState& state) {
  if (state.length != length_) {
    throw UsageError(refusal("data set length", std::to_string(state.length), std::to_string(length_)));
  }
  if (state.seed != seed_)
    throw UsageError(refusal("seed", std::to_string(state.seed), std::to_string(seed_)));
  check_epoch(state.epoch);
  if (state.position < 0 || state.position > size()) {
    throw UsageError("the saved sampler position is " + std::to_string(state.position) +
                     ", but this rank's epoch has " + std::to_string(size()) +
                     " samples. Was it saved with another number of ranks?");
  }
  epoch_ = state.epoch;
  position_ = state.position;
}

DistributedSampler::DistributedSampler(std::int64_t length, DistributedSamplerOptions options)
    : Sampler(length, options.seed), options_(options) {
  check_options(options_);
  size_ = indices_per_rank(length, options_);
}

std::vector<std::int64_t> DistributedSampler::epoch_indices(std::int64_t epoch) const {
  check_epoch(epoch);
  const auto order =
      options_.shuffle ? seeded_permutation(length(), epoch_seed(seed(), epoch)) : at::Tensor();
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

}  // namespace lockstep
