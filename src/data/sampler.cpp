#include "lockstep/data/sampler.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "core/checksum.hpp"
#include "data/permutation.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

void check_epoch(std::int64_t epoch) {
  if (epoch < 0) throw UsageError(fmt::format("the epoch must be 0 or more, but is {}.", epoch));
}

void check_options(const DistributedSamplerOptions& options) {
  if (options.num_replicas < 1) {
    throw UsageError(
        fmt::format("DistributedSampler: num_replicas must be 1 or more, but is {}.", options.num_replicas));
  }
  if (options.rank < 0 || options.rank >= options.num_replicas) {
    throw UsageError(fmt::format("DistributedSampler: rank must be from 0 to {}, but is {}.",
                                 options.num_replicas - 1, options.rank));
  }
}

std::int64_t indices_per_rank(std::int64_t length, const DistributedSamplerOptions& options) {
  const bool round_up = !options.drop_last && length % options.num_replicas != 0;
  return length / options.num_replicas + (round_up ? 1 : 0);
}

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
  throw UsageError(
      fmt::format("{}: num_samples is {}, but must be from 0 to {} here.", sampler, count, most));
}

std::int64_t weights_above_zero(const std::vector<double>& weights) {
  std::int64_t above = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]) || weights[i] < 0) {
      throw UsageError(fmt::format(
          "WeightedRandomSampler: weight {} is {:f}, but must be 0 or more and finite.", i, weights[i]));
    }
    above += weights[i] > 0 ? 1 : 0;
  }
  return above;
}

std::int64_t mega_batch_size(std::int64_t samples, const LengthGroupedOptions& options) {
  auto batches = options.mega_batch_mult;
  if (batches == 0) {
    batches = std::clamp<std::int64_t>(samples / (options.batch_size * 4), 1, 50);
  }
  return batches * options.batch_size;
}

}  // namespace

Sampler::Sampler(std::int64_t length, std::uint64_t seed) : length_(length), seed_(seed) {
  if (length < 0) {
    throw UsageError(fmt::format("a sampler needs a data set of 0 or more samples, got {}.", length));
  }
}

std::uint64_t Sampler::epoch_seed(std::int64_t epoch) const {
  check_epoch(epoch);
  const auto step = static_cast<std::uint64_t>(epoch);
  if (seed_ > std::numeric_limits<std::uint64_t>::max() - step) {
    throw UsageError(
        fmt::format("a sampler's seed {} + epoch {} exceeds 2^64 - 1, the largest seed of a generator. "
                    "Choose a smaller seed.",
                    seed_, epoch));
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
    // After its end the order restarts from its beginning, like PyTorch's padding.
    const auto position = (options_.rank + row * options_.num_replicas) % length();
    mine.push_back(shuffled ? shuffled[position] : position);
  }
  return mine;
}

std::string DistributedSampler::kind() const {
  return fmt::format("{} over {} ranks", options_.shuffle ? "random" : "sequential", options_.num_replicas);
}

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

std::string WeightedRandomSampler::kind() const {
  return fmt::format("weighted{}, weights {:08x}", options_.replacement ? "" : " without replacement",
                     crc32c(weights_.data(), weights_.size() * sizeof(double)));
}

SubsetRandomSampler::SubsetRandomSampler(std::int64_t length, Indices indices, std::uint64_t seed)
    : Sampler(length, seed), indices_(std::move(indices)) {
  for (const auto index : indices_) {
    if (index >= 0 && index < length) continue;
    throw UsageError(fmt::format("SubsetRandomSampler: index {} does not exist: the data set has {} samples.",
                                 index, length));
  }
}

std::string SubsetRandomSampler::kind() const {
  return fmt::format("random subset, indices {:08x}",
                     crc32c(indices_.data(), indices_.size() * sizeof(std::int64_t)));
}

Indices SubsetRandomSampler::epoch_indices(std::int64_t epoch) const {
  const auto positions = seeded_permutation(size(), epoch_seed(epoch));
  const auto* position = positions.const_data_ptr<std::int64_t>();
  Indices order;
  order.reserve(indices_.size());
  for (std::int64_t i = 0; i < size(); ++i) order.push_back(indices_[static_cast<std::size_t>(position[i])]);
  return order;
}

std::string LengthGroupedSampler::kind() const {
  return fmt::format("grouped by length, {} samples at a time", mega_batch_size(length(), options_));
}

LengthGroupedSampler::LengthGroupedSampler(Indices lengths, LengthGroupedOptions options)
    : Sampler(static_cast<std::int64_t>(lengths.size()), options.seed),
      lengths_(std::move(lengths)),
      options_(options) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 31;
  for (const auto& [name, value, least] :
       {std::tuple{"batch_size", options.batch_size, 1}, {"mega_batch_mult", options.mega_batch_mult, 0}}) {
    if (value >= least && value <= kLargest) continue;
    throw UsageError(
        fmt::format("LengthGroupedSampler: {} must be from {} to 2^31, but is {}.", name, least, value));
  }
}

Indices LengthGroupedSampler::epoch_indices(std::int64_t epoch) const {
  const auto permutation = seeded_permutation(length(), epoch_seed(epoch));
  const auto* first = permutation.const_data_ptr<std::int64_t>();
  Indices order(first, first + length());
  const auto length_of = [this](std::int64_t index) { return lengths_[static_cast<std::size_t>(index)]; };
  const auto longer = [&](std::int64_t left, std::int64_t right) {
    return length_of(left) > length_of(right);
  };
  const auto step = mega_batch_size(length(), options_);
  std::int64_t longest = 0;
  for (std::int64_t begin = 0; begin < length(); begin += step) {
    std::stable_sort(order.begin() + begin, order.begin() + std::min(begin + step, length()), longer);
    if (longer(order[static_cast<std::size_t>(begin)], order[static_cast<std::size_t>(longest)])) {
      longest = begin;
    }
  }
  // The batch that needs most memory comes first: if it does not fit, that shows at once.
  if (!order.empty()) std::swap(order.front(), order[static_cast<std::size_t>(longest)]);
  return order;
}

}  // namespace lockstep
