#include "data/batch_reader.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

/// Number of indices in an error message.
constexpr std::size_t kIndicesNamed = 8;

std::string list_indices(std::span<const std::int64_t> indices) {
  const auto named = indices.first(std::min(kIndicesNamed, indices.size()));
  return fmt::format("{}{}", fmt::join(named, ", "), indices.size() > kIndicesNamed ? ", ..." : "");
}

}  // namespace

BatchReader::BatchReader(std::shared_ptr<const Dataset> dataset, const DataLoaderOptions& options,
                         std::int64_t epoch, std::int64_t first_batch, BatchPlan plan,
                         std::vector<std::vector<std::int64_t>> own_batches)
    : dataset_(std::move(dataset)),
      options_(options),
      epoch_(epoch),
      first_batch_(first_batch),
      plan_(std::move(plan)),
      own_batches_(std::move(own_batches)),
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

std::span<const std::int64_t> BatchReader::indices(std::int64_t number) const {
  const auto planned = plan_.indices(number);
  if (own_batches_.empty()) return planned;
  return own_batches_[static_cast<std::size_t>(planned.front())];
}

std::int64_t BatchReader::valid_rows(std::int64_t number) const {
  const auto planned = plan_.valid_rows(number);
  return own_batches_.empty() || planned == 0 ? planned : std::ssize(indices(number));
}

Batch BatchReader::load(std::int64_t number) const {
  const auto rows = indices(number);
  std::vector<SampleContext> contexts;
  contexts.reserve(rows.size());
  for (const auto index : rows) contexts.push_back({.seed = sample_seed(options_.seed, epoch_, index)});
  Batch batch = options_.collate ? collated(rows, contexts) : dataset_->get_batch(rows, contexts);
  batch.indices.assign(rows.begin(), rows.end());
  // A data set may have marked rows itself, for example those in which it replaced a sample.
  batch.valid.resize(rows.size(), true);
  std::fill(batch.valid.begin() + valid_rows(number), batch.valid.end(), false);
  return batch;
}

Batch BatchReader::collated(std::span<const std::int64_t> indices,
                            std::span<const SampleContext> contexts) const {
  std::vector<Example> examples;
  std::vector<bool> valid;
  examples.reserve(indices.size());
  for (std::size_t row = 0; row < indices.size(); ++row) {
    examples.push_back(dataset_->get_named(indices[row], contexts[row]));
    valid.push_back(examples.back().valid.empty() || examples.back().valid.front());
  }
  Batch batch = options_.collate(std::move(examples));
  if (batch.valid.empty()) batch.valid = std::move(valid);
  return batch;
}

void BatchReader::fail(std::int64_t number, const char* text) const {
  const auto rows = indices(number);
  std::throw_with_nested(
      DataError(fmt::format("loading batch {} of epoch {} ({}{}) failed: {}", first_batch_ + number, epoch_,
                            rows.size() == 1 ? "sample " : "samples ", list_indices(rows), text)));
}

}  // namespace lockstep
