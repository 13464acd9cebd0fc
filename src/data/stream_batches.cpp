#include "data/stream_batches.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep {

StreamBatches::StreamBatches(std::shared_ptr<const StreamDataset> stream, const DataLoaderOptions& options,
                             std::int64_t epoch, PartPositions parts, bool completes)
    : stream_(std::move(stream)),
      options_(options),
      epoch_(epoch),
      begin_(std::move(parts)),
      completes_(completes),
      copy_(options.device, options.pin_memory, options.non_blocking) {
  for (const auto& position : begin_) {
    parts_.push_back(std::make_unique<Part>());
    parts_.back()->position = position;
  }
}

PrefetchedBatch StreamBatches::read(std::int64_t number) {
  const at::NoGradGuard no_gradients;
  const auto count = std::ssize(parts_);
  Part& part = *parts_[static_cast<std::size_t>(number % count)];
  std::unique_lock lock(part.reading);
  part.turned.wait(lock, [&] { return part.turn == number / count; });
  const std::shared_ptr<void> end_of_turn(nullptr, [&](std::nullptr_t) {
    ++part.turn;
    part.turned.notify_all();
  });
  try {
    Outcome outcome;
    auto batch = read_part(part, outcome.has_batch);
    outcome.after = part.position;
    const std::lock_guard guard(mutex_);
    outcomes_[number] = std::move(outcome);
    return batch;
  } catch (const c10::Error& error) {
    fail(part.position.part, error.what_without_backtrace());
  } catch (const std::exception& error) {
    fail(part.position.part, error.what());
  }
}

PrefetchedBatch StreamBatches::read_part(Part& part, bool& has_batch) const {
  auto& position = part.position;
  if (position.ended) return {};
  if (!part.reader) part.reader = stream_->open(position.part, epoch_, position.state);
  std::vector<Example> samples;
  while (std::ssize(samples) < options_.batch_size) {
    auto sample = part.reader->next();
    position.ended = !sample;
    if (position.ended) break;
    samples.push_back(std::move(*sample));
  }
  position.state = position.ended ? std::string() : part.reader->state_dict();
  if (position.ended) part.reader.reset();
  const auto rows = std::ssize(samples);
  has_batch = rows > 0 && !(position.ended && options_.drop_last);
  if (!has_batch) return {};
  if (completes_ && rows < options_.batch_size) {
    auto first = first_samples(position.part, options_.batch_size - rows);
    std::move(first.begin(), first.end(), std::back_inserter(samples));
  }
  return make_batch(std::move(samples), rows);
}

StreamBatches::Outcome StreamBatches::take_outcome(std::int64_t number) {
  const std::lock_guard guard(mutex_);
  return std::move(outcomes_.extract(number).mapped());
}

std::vector<Example> StreamBatches::first_samples(const StreamPart& part, std::int64_t count) const {
  const auto reader = stream_->open(part, epoch_, {});
  std::vector<Example> samples;
  while (std::ssize(samples) < count) {
    auto sample = reader->next();
    if (!sample) break;
    samples.push_back(std::move(*sample));
  }
  const auto some = samples.size();
  for (std::size_t index = 0; some > 0 && std::ssize(samples) < count; ++index)
    samples.push_back(samples[index]);
  return samples;
}

std::optional<PrefetchedBatch> StreamBatches::repetition(std::int64_t count) {
  const at::NoGradGuard no_gradients;
  if (repeated_.empty()) repeated_ = first_samples_of_any(count);
  if (repeated_.empty()) return std::nullopt;
  return make_batch(repeated_, 0);
}

std::vector<Example> StreamBatches::first_samples_of_any(std::int64_t count) const {
  std::vector<StreamPart> parts;
  for (const auto& position : begin_) parts.push_back(position.part);
  // Independent of the part that a resumed pass began with.
  std::ranges::sort(parts, {}, [](const StreamPart& part) { return std::pair(part.rank, part.worker); });
  for (const auto& part : parts) {
    try {
      auto samples = first_samples(part, count);
      if (!samples.empty()) return samples;
    } catch (const std::exception& error) {
      fail(part, error.what());
    }
  }
  return {};
}

PrefetchedBatch StreamBatches::make_batch(std::vector<Example> samples, std::int64_t valid) const {
  std::vector<bool> marks(samples.size(), false);
  std::fill_n(marks.begin(), valid, true);
  Batch batch = options_.collate ? options_.collate(std::move(samples)) : default_collate(std::move(samples));
  batch.valid = std::move(marks);
  return copy_.send(std::move(batch));
}

void StreamBatches::fail(const StreamPart& part, const char* text) const {
  std::throw_with_nested(DataError(fmt::format(
      "loading a batch of epoch {} of a stream (the part of worker {} of {}, rank {} of {}) failed: {}",
      epoch_, part.worker, part.num_workers, part.rank, part.num_replicas, text)));
}

}  // namespace lockstep
