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

BatchReader::BatchReader(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options,
                         std::int64_t epoch, std::int64_t first_batch, BatchPlan plan)
    : dataset_(std::move(dataset)),
      options_(options),
      epoch_(epoch),
      first_batch_(first_batch),
      plan_(std::move(plan)),
      copy_(options.device, options.pin_memory, options.non_blocking) {}

PrefetchedBatch BatchReader::read(std::int64_t number) const {
  const at::NoGradGuard no_gradients;
  try {
    return copy_.send(load(number));
  } catch (const c10::Error& error) {
    fail(number, error.what_without_backtrace());
  } catch (const std::exception& error) {
    fail(number, error.what());
  }
}

Batch BatchReader::load(std::int64_t number) const {
  const auto indices = plan_.indices(number);
  std::vector<SampleContext> contexts;
  contexts.reserve(indices.size());
  for (const auto index : indices) contexts.push_back({.seed = sample_seed(options_.seed, epoch_, index)});
  Batch batch = options_.collate ? collated(indices, contexts) : dataset_->get_batch(indices, contexts);
  batch.indices.assign(indices.begin(), indices.end());
  // A data set may have put one sample in another's place.
  batch.valid.resize(indices.size(), true);
  std::fill(batch.valid.begin() + plan_.valid_rows(number), batch.valid.end(), false);
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
  const auto indices = plan_.indices(number);
  std::throw_with_nested(DataError(
      "loading batch " + std::to_string(first_batch_ + number) + " of epoch " + std::to_string(epoch_) +
      " (" + (indices.size() == 1 ? "sample " : "samples ") + listed(indices) + ") failed: " + text));
}

}  // namespace lockstep
