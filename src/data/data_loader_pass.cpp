#include "data/data_loader_pass.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "lockstep/comm/trace.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

/// The batches of an epoch of a batch sampler; empty without one.
std::vector<std::vector<std::int64_t>> own_batches(const BatchSampler* sampler, std::int64_t epoch) {
  if (!sampler) return {};
  auto batches = sampler->epoch_batches(epoch);
  if (std::ssize(batches) != sampler->size()) {
    throw UsageError(
        fmt::format("DataLoader: the batch sampler gives {} batches in epoch {}, but its size() is {}.",
                    batches.size(), epoch, sampler->size()));
  }
  const auto empty = std::ranges::find_if(batches, [](const auto& batch) { return batch.empty(); });
  if (empty == batches.end()) return batches;
  throw UsageError(fmt::format("DataLoader: the batch sampler's batch {} of epoch {} is empty.",
                               empty - batches.begin(), epoch));
}

}  // namespace

std::int64_t DataLoader::Core::batches() const {
  if (const auto known = known_batches()) return *known;
  throw UsageError("DataLoader: the stream does not know how many samples it has, so there is no size().");
}

DataLoader::Pass::Pass(std::shared_ptr<Core> core) : core_(std::move(core)) {
  if (core_->stream) {
    // With dispatch_batches, only rank 0 reads.
    const bool reads = !core_->is_dispatched() || core_->plan.rank == 0;
    stream_ = open_stream({.stream = core_->stream,
                           .options = core_->options,
                           .plan = core_->plan,
                           .group = core_->group,
                           .epoch = core_->epoch,
                           .parts = core_->parts,
                           .look_ahead = core_->look_ahead},
                          reads ? core_->prefetcher() : nullptr);
    return;
  }
  reader_.emplace(core_->dataset, core_->options, core_->epoch, core_->position(), core_->plan_rest(),
                  own_batches(core_->options.batch_sampler.get(), core_->epoch));
  if (auto* const workers = core_->prefetcher()) {
    workers->start([this](std::int64_t number) { return reader_->read(number); }, reader_->plan().count());
  }
}

std::int64_t DataLoader::Pass::size() const {
  if (!stream_) return core_->batches();
  const auto left = stream_->left();
  return left ? core_->consumed + *left : std::numeric_limits<std::int64_t>::max();
}

std::optional<Batch> DataLoader::Pass::next() {
  if (stopped_) {
    throw UsageError(
        "this pass over the data loader has ended: a batch failed, or the loader was destroyed, began "
        "another pass, or was moved to another position. Begin a new range-for.");
  }
  const trace::Range range("loader");
  std::optional<Batch> batch;
  try {
    batch = stream_ ? take_of_stream() : take();
  } catch (...) {
    // Otherwise the next call would skip the batch that failed.
    stop();
    throw;
  }
  if (!batch) {
    stop();
    core_->go_to(core_->epoch + 1, 0);
  }
  return batch;
}

std::optional<Batch> DataLoader::Pass::take() {
  auto batch = read();
  if (!batch) return std::nullopt;
  core_->consumed = reader_->plan().consumed_after(given_++);
  return reader_->finish(std::move(*batch));
}

std::optional<Batch> DataLoader::Pass::take_of_stream() {
  auto batch = stream_->next();
  if (!batch) return std::nullopt;
  core_->parts = stream_->parts();
  ++core_->consumed;
  return batch;
}

std::optional<PrefetchedBatch> DataLoader::Pass::read() {
  if (core_->workers) return core_->workers->next();
  if (given_ == reader_->plan().count()) return std::nullopt;
  return reader_->read(given_);
}

void DataLoader::Pass::stop() noexcept {
  if (stopped_) return;
  stopped_ = true;
  if (core_->workers) core_->workers->drop();
  if (!core_->options.persistent_workers) core_->workers.reset();
}

}  // namespace lockstep
