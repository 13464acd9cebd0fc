#include <ATen/core/Tensor.h>

#include <algorithm>

#include "../permutation.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/sampler.hpp"

namespace lockstep {
namespace {

using Indices = std::vector<std::int64_t>;

std::int64_t mega_batch_size(std::int64_t samples, const LengthGroupedOptions& options) {
  auto batches = options.mega_batch_mult;
  if (batches == 0) {
    batches = std::clamp<std::int64_t>(samples / (options.batch_size * 4), 1, 50);
  }
  return batches * options.batch_size;
}

}  // namespace

LengthGroupedSampler::LengthGroupedSampler(Indices lengths, LengthGroupedOptions options)
    : Sampler(static_cast<std::int64_t>(lengths.size()), options.seed),
      lengths_(std::move(lengths)),
      options_(options) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 31;
  for (const auto& [name, value, least] :
       {std::tuple{"batch_size", options.batch_size, 1}, {"mega_batch_mult", options.mega_batch_mult, 0}}) {
    if (value >= least && value <= kLargest) continue;
    throw UsageError("LengthGroupedSampler: " + std::string(name) + " must be from " + std::to_string(least) +
                     " to 2^31, but is " + std::to_string(value) + ".");
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
  // What needs most memory comes first: if it does not fit, that shows at once.
  if (!order.empty()) std::swap(order.front(), order[static_cast<std::size_t>(longest)]);
  return order;
}

}  // namespace lockstep
