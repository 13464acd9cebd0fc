#include "lockstep/data/dataset.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <numeric>

#include "core/random.hpp"
#include "data/permutation.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/collate.hpp"

namespace lockstep {
namespace {

/// One step of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
void check_index(std::int64_t index, std::int64_t size) {
  if (index >= 0 && index < size) return;
  throw UsageError(fmt::format(
      "sample {} does not exist: the data set has {} samples, numbered from 0. Check the sampler's indices.",
      index, size));
}

[[noreturn]] void rethrow_with_index(std::int64_t index, const char* text) {
  std::throw_with_nested(DataError(fmt::format("reading sample {} of the data set failed: {}", index, text)));
}

void check_rows(const Batch& tensors) {
  if (tensors.empty()) throw UsageError("TensorDataset needs at least one tensor.");
  for (const auto& [name, texts] : tensors.text_items()) {
    if (std::ssize(texts) == tensors.size()) continue;
    throw UsageError(
        fmt::format("TensorDataset: there are {} texts '{}' for {} rows. Every sample needs one.",
                    texts.size(), name, tensors.size()));
  }
  for (const auto& [name, tensor] : tensors.items()) {
    if (!tensor.defined() || tensor.dim() == 0) {
      throw UsageError(fmt::format(
          "TensorDataset: '{}' is undefined or a scalar; it needs one row for each sample.", name));
    }
    if (tensor.size(0) != tensors.size()) {
      throw UsageError(fmt::format(
          "TensorDataset: '{}' has {} rows, but '{}' has {}. Every tensor needs one row for each sample.",
          name, tensor.size(0), tensors.names().front(), tensors.size()));
    }
  }
}

void check_lengths(std::span<const std::int64_t> lengths, std::int64_t size) {
  std::int64_t left = size;
  for (const auto length : lengths) {
    if (length < 0 || length > left) left = -1;
    if (left < 0) break;
    left -= length;
  }
  if (left == 0) return;
  throw UsageError(fmt::format(
      "random_split: the lengths [{}] must be 0 or more and add up to the size of the data set, {}.",
      fmt::join(lengths, ", "), size));
}

/// torch.utils.data.random_split's lengths for fractions.
std::vector<std::int64_t> lengths_of(std::span<const double> fractions, std::int64_t size) {
  constexpr double kTolerance = 1e-9;
  const bool valid = std::all_of(fractions.begin(), fractions.end(), [](double one) { return one >= 0; }) &&
                     std::abs(std::accumulate(fractions.begin(), fractions.end(), 0.0) - 1) <= kTolerance;
  if (!valid)
    throw UsageError(fmt::format("random_split: the fractions [{}] must be 0 or more and add up to 1.",
                                 fmt::join(fractions, ", ")));
  std::vector<std::int64_t> lengths;
  for (const double fraction : fractions)
    lengths.push_back(static_cast<std::int64_t>(std::floor(static_cast<double>(size) * fraction)));
  const std::int64_t left = size - std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  for (std::int64_t i = 0; i < left; ++i) ++lengths[static_cast<std::size_t>(i) % lengths.size()];
  return lengths;
}

}  // namespace

std::uint64_t sample_seed(std::uint64_t loader_seed, std::int64_t epoch, std::int64_t index) noexcept {
  return mix_bits(mix_bits(loader_seed, static_cast<std::uint64_t>(epoch)) ^
                  static_cast<std::uint64_t>(index));
}

std::string Dataset::fingerprint() const { return fmt::format("{} samples", size()); }

Example Dataset::get_named(std::int64_t index, const SampleContext& context) const {
  try {
    Example example = get(index, context);
    example.indices = {index};
    return example;
  } catch (const c10::Error& error) {
    rethrow_with_index(index, error.what_without_backtrace());
  } catch (const std::exception& error) {
    rethrow_with_index(index, error.what());
  }
}

Batch Dataset::get_batch(std::span<const std::int64_t> indices,
                         std::span<const SampleContext> contexts) const {
  std::vector<Example> examples;
  examples.reserve(indices.size());
  for (std::size_t row = 0; row < indices.size(); ++row) {
    examples.push_back(get_named(indices[row], contexts[row]));
  }
  return default_collate(std::move(examples));
}

TensorDataset::TensorDataset(Batch tensors) : tensors_(std::move(tensors)) {
  check_rows(tensors_);
  tensors_.indices.clear();
}

Example TensorDataset::get(std::int64_t index, const SampleContext&) const {
  check_index(index, size());
  Example example;
  for (const auto& [name, tensor] : tensors_.items()) example.insert(name, tensor.select(0, index));
  for (const auto& [name, texts] : tensors_.text_items())
    example.set_texts(name, {texts[static_cast<std::size_t>(index)]});
  return example;
}

Batch TensorDataset::get_batch(std::span<const std::int64_t> indices, std::span<const SampleContext>) const {
  for (const auto index : indices) check_index(index, size());
  const auto rows = at::tensor(at::ArrayRef<std::int64_t>(indices.data(), indices.size()), at::kLong);
  Batch batch;
  for (const auto& [name, tensor] : tensors_.items()) {
    batch.insert(name, tensor.index_select(0, rows.to(tensor.device())));
  }
  for (const auto& [name, texts] : tensors_.text_items()) {
    std::vector<std::string> chosen;
    for (const auto index : indices) chosen.push_back(texts[static_cast<std::size_t>(index)]);
    batch.set_texts(name, std::move(chosen));
  }
  batch.indices.assign(indices.begin(), indices.end());
  return batch;
}

Subset::Subset(std::shared_ptr<const Dataset> dataset, std::vector<std::int64_t> indices)
    : dataset_(std::move(dataset)), indices_(std::move(indices)) {
  if (!dataset_) throw UsageError("Subset was given no data set.");
  for (const auto index : indices_) check_index(index, dataset_->size());
}

std::int64_t Subset::whole_index(std::int64_t index) const {
  check_index(index, size());
  return indices_[static_cast<std::size_t>(index)];
}

Example Subset::get(std::int64_t index, const SampleContext& context) const {
  return dataset_->get(whole_index(index), context);
}

Batch Subset::get_batch(std::span<const std::int64_t> indices,
                        std::span<const SampleContext> contexts) const {
  std::vector<std::int64_t> whole;
  whole.reserve(indices.size());
  for (const auto index : indices) whole.push_back(whole_index(index));
  Batch batch = dataset_->get_batch(whole, contexts);
  batch.indices.assign(indices.begin(), indices.end());
  return batch;
}

std::string Subset::fingerprint() const {
  std::uint64_t sum = 0;
  for (const auto index : indices_) sum = mix_bits(sum ^ static_cast<std::uint64_t>(index));
  return fmt::format("{} samples ({}) of [{}]", indices_.size(), sum, dataset_->fingerprint());
}

std::vector<std::shared_ptr<const Subset>> random_split(const std::shared_ptr<const Dataset>& dataset,
                                                        std::span<const std::int64_t> lengths,
                                                        std::uint64_t seed) {
  if (!dataset) throw UsageError("random_split was given no data set.");
  check_lengths(lengths, dataset->size());
  const auto order = seeded_permutation(dataset->size(), seed);
  const auto* next = order.const_data_ptr<std::int64_t>();
  std::vector<std::shared_ptr<const Subset>> parts;
  for (const auto length : lengths) {
    parts.push_back(std::make_shared<const Subset>(dataset, std::vector<std::int64_t>(next, next + length)));
    next += length;
  }
  return parts;
}

std::vector<std::shared_ptr<const Subset>> random_split(const std::shared_ptr<const Dataset>& dataset,
                                                        std::span<const double> fractions,
                                                        std::uint64_t seed) {
  if (!dataset) throw UsageError("random_split was given no data set.");
  return random_split(dataset, lengths_of(fractions, dataset->size()), seed);
}

}  // namespace lockstep
