#include "batch_reader.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <exception>
#include <string>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

/// Enough to find the culprit by, short enough for a log line.
constexpr std::size_t kIndicesNamed = 8;

std::string listed(std::span<const std::int64_t> indices) {
  std::string text;
  for (const auto index : indices.first(std::min(kIndicesNamed, indices.size()))) {
    text += (text.empty() ? "" : ", ") + std::to_string(index);
  }
  return indices.size() > kIndicesNamed ? text + ", ..." : text;
}

}  // namespace

std::int64_t batches_in(std::int64_t samples, std::int64_t batch_size, bool drop_last) noexcept {
  return samples / batch_size + (!drop_last && samples % batch_size != 0 ? 1 : 0);
}

BatchReader::BatchReader(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options,
                         std::int64_t epoch, std::int64_t first_batch, std::vector<std::int64_t> order)
    : dataset_(std::move(dataset)),
      options_(options),
      epoch_(epoch),
      first_batch_(first_batch),
      order_(std::move(order)) {}

std::int64_t BatchReader::count() const {
  return batches_in(static_cast<std::int64_t>(order_.size()), options_.batch_size, options_.drop_last);
}

Batch BatchReader::read(std::int64_t number) const {
  const at::NoGradGuard no_gradients;
  try {
    return load(indices_of(number));
  } catch (const c10::Error& error) {
    fail(number, error.what_without_backtrace());
  } catch (const std::exception& error) {
    fail(number, error.what());
  }
}

std::span<const std::int64_t> BatchReader::indices_of(std::int64_t number) const {
  const auto size = static_cast<std::size_t>(options_.batch_size);
  const auto first = static_cast<std::size_t>(number) * size;
  return std::span(order_).subspan(first, std::min(size, order_.size() - first));
}

Batch BatchReader::load(std::span<const std::int64_t> indices) const {
  std::vector<SampleContext> contexts;
  contexts.reserve(indices.size());
  for (const auto index : indices) contexts.push_back({.seed = sample_seed(options_.seed, epoch_, index)});
  Batch batch = options_.collate ? collated(indices, contexts) : dataset_->get_batch(indices, contexts);
  batch.indices.assign(indices.begin(), indices.end());
  return batch;
}

Batch BatchReader::collated(std::span<const std::int64_t> indices,
                            std::span<const SampleContext> contexts) const {
  std::vector<Example> examples;
  examples.reserve(indices.size());
  for (std::size_t row = 0; row < indices.size(); ++row) {
    examples.push_back(dataset_->get_named(indices[row], contexts[row]));
  }
  return options_.collate(std::move(examples));
}

void BatchReader::fail(std::int64_t number, const char* text) const {
  const auto indices = indices_of(number);
  std::throw_with_nested(DataError(
      "loading batch " + std::to_string(first_batch_ + number) + " of epoch " + std::to_string(epoch_) +
      " (" + (indices.size() == 1 ? "sample " : "samples ") + listed(indices) + ") failed: " + text));
}

}  // namespace lockstep
