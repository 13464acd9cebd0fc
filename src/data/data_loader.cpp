#include "lockstep/data/data_loader.hpp"

#include <algorithm>
#include <atomic>
#include <string>

#include "batch_reader.hpp"
#include "lockstep/core/error.hpp"
#include "prefetcher.hpp"

namespace lockstep {

/// What a loader and its pass share.
struct DataLoader::Core {
  std::shared_ptr<const Dataset> dataset;
  DataLoaderOptions options;
  std::shared_ptr<Sampler> sampler;
  int num_replicas = 1;
  std::weak_ptr<Pass> pass;
  std::uint64_t pass_number = 0;
};

/// One pass over what is left of an epoch.
class DataLoader::Pass {
 public:
  explicit Pass(std::shared_ptr<Core> core);

  /// The next batch, which counts as consumed from now on; at the end of the epoch nothing, and the epoch is
  /// finished.
  std::optional<Batch> next();
  void stop() noexcept;
  bool is_stopped() const noexcept { return stopped_; }

 private:
  std::optional<Batch> read();

  std::shared_ptr<Core> core_;
  BatchReader reader_;
  std::int64_t read_ = 0;
  bool stopped_ = false;
  std::unique_ptr<Prefetcher> prefetcher_;
};

namespace {

std::uint64_t next_pass_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

void check_at_least(const char* name, std::int64_t value, std::int64_t least) {
  if (value >= least) return;
  throw UsageError("DataLoader: " + std::string(name) + " must be " + std::to_string(least) +
                   " or more, but is " + std::to_string(value) + ".");
}

void check_options(const DataLoaderOptions& options) {
  check_at_least("batch_size", options.batch_size, 1);
  check_at_least("num_workers", options.num_workers, 0);
  check_at_least("prefetch_factor", options.prefetch_factor, 1);
}

std::shared_ptr<Sampler> make_sampler(const DataLoaderOptions& options, std::int64_t length, int num_replicas,
                                      int rank) {
  if (!options.sampler) {
    return std::make_shared<DistributedSampler>(length,
                                                DistributedSamplerOptions{.num_replicas = num_replicas,
                                                                          .rank = rank,
                                                                          .shuffle = options.shuffle,
                                                                          .seed = options.seed,
                                                                          .drop_last = options.drop_last});
  }
  if (options.sampler->length() == length) return options.sampler;
  throw UsageError("DataLoader: the sampler was made for a data set of " +
                   std::to_string(options.sampler->length()) + " samples, but this one has " +
                   std::to_string(length) + ".");
}

std::int64_t product(std::int64_t left, std::int64_t right) {
  std::int64_t result = 0;
  if (left < 0 || right < 0 || __builtin_mul_overflow(left, right, &result)) {
    throw UsageError(
        "the saved loader state is damaged: position, batch_size and num_replicas must be 0 or more and "
        "their product below 2^63.");
  }
  return result;
}

/// The position of `saved`, counted in batches of a loader with other sizes.
std::int64_t converted_position(const DataLoaderState& saved, const DataLoaderState& here) {
  if (saved.batch_size == here.batch_size && saved.num_replicas == here.num_replicas) return saved.position;
  const auto consumed = product(product(saved.position, saved.batch_size), saved.num_replicas);
  const auto global_batch = product(here.batch_size, here.num_replicas);
  if (consumed % global_batch == 0) return consumed / global_batch;
  throw UsageError(
      "the saved loader position is " + std::to_string(consumed) +
      " samples over all ranks, which is no whole number of this loader's global batches (batch size " +
      std::to_string(here.batch_size) + " x " + std::to_string(here.num_replicas) +
      " ranks). Keep the global batch size, or start at an epoch's beginning.");
}

}  // namespace

DataLoader::Pass::Pass(std::shared_ptr<Core> core)
    : core_(std::move(core)),
      reader_(core_->dataset, core_->options, core_->sampler->epoch(),
              batches_in(core_->sampler->position(), core_->options.batch_size, false),
              core_->sampler->remaining()) {
  const auto& options = core_->options;
  if (options.num_workers == 0) return;
  prefetcher_ = std::make_unique<Prefetcher>([this](std::int64_t number) { return reader_.read(number); },
                                             reader_.count(), options.num_workers,
                                             std::int64_t{options.num_workers} * options.prefetch_factor);
}

std::optional<Batch> DataLoader::Pass::next() {
  if (stopped_) {
    throw UsageError(
        "this pass over the data loader has ended: a batch failed, or the loader was destroyed, began "
        "another pass, or was moved to another position. Begin a new range-for.");
  }
  std::optional<Batch> batch;
  try {
    batch = read();
  } catch (...) {
    stop();  // going on would skip the batch that failed
    throw;
  }
  if (!batch) {
    stop();
    core_->sampler->finish_epoch();
    return std::nullopt;
  }
  core_->sampler->advance(static_cast<std::int64_t>(batch->indices.size()));
  return batch->to(core_->options.device);
}

std::optional<Batch> DataLoader::Pass::read() {
  if (prefetcher_) return prefetcher_->next();
  if (read_ == reader_.count()) return std::nullopt;
  return reader_.read(read_++);
}

void DataLoader::Pass::stop() noexcept {
  stopped_ = true;
  prefetcher_.reset();
}

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options) {
  if (!dataset) throw UsageError("DataLoader was given no data set.");
  check_options(options);
  auto sampler = make_sampler(options, dataset->size(), 1, 0);
  core_ = std::make_shared<Core>(Core{std::move(dataset), std::move(options), std::move(sampler), 1, {}});
}

DataLoader::~DataLoader() { stop_pass(); }

DataLoader::DataLoader(DataLoader&&) noexcept = default;

DataLoader& DataLoader::operator=(DataLoader&& other) noexcept {
  if (this != &other) {
    stop_pass();
    core_ = std::move(other.core_);
  }
  return *this;
}

void DataLoader::stop_pass() noexcept {
  if (!core_) return;
  if (const auto pass = core_->pass.lock()) pass->stop();
}

DataLoader::Iterator DataLoader::begin() {
  stop_pass();
  auto pass = std::make_shared<Pass>(core_);
  core_->pass = pass;
  core_->pass_number = next_pass_number();
  return Iterator(std::move(pass));
}

std::int64_t DataLoader::size() const {
  return batches_in(core_->sampler->size(), core_->options.batch_size, core_->options.drop_last);
}

void DataLoader::set_epoch(std::int64_t epoch) {
  if (epoch == core_->sampler->epoch()) return;
  core_->sampler->set_epoch(epoch);
  stop_pass();
}

std::int64_t DataLoader::epoch() const { return core_->sampler->epoch(); }

std::int64_t DataLoader::position() const {
  return batches_in(core_->sampler->position(), core_->options.batch_size, false);
}

void DataLoader::rewind() {
  stop_pass();
  core_->sampler->rewind();
}

const Dataset& DataLoader::dataset() const { return *core_->dataset; }

std::int64_t DataLoader::batch_size() const { return core_->options.batch_size; }

const DataLoaderOptions& DataLoader::options() const { return core_->options; }

DataLoader DataLoader::shard(int num_replicas, int rank, at::Device device) const {
  auto options = core_->options;
  options.device = device;
  if (options.sampler && num_replicas != 1) {
    throw UsageError(
        "DataLoader: a loader with a sampler of its own cannot be divided between ranks. Give it a sampler "
        "that knows the rank, and do not prepare it.");
  }
  if (core_->num_replicas != 1) throw UsageError("DataLoader: this loader is divided between ranks already.");
  auto sampler = make_sampler(options, core_->dataset->size(), num_replicas, rank);
  DataLoader part;
  part.core_ = std::make_shared<Core>(Core{core_->dataset, options, std::move(sampler), num_replicas, {}});
  part.load_state(state());
  return part;
}

DataLoaderState DataLoader::state() const { return position_handle().state(); }

void DataLoader::load_state(const DataLoaderState& saved) { position_handle().load_state(saved); }

DataLoader::Position DataLoader::position_handle() const { return Position(core_); }

DataLoaderState DataLoader::Position::state() const {
  const auto& sampler = *core_->sampler;
  const auto batch_size = core_->options.batch_size;
  return {.seed = sampler.seed(),
          .epoch = sampler.epoch(),
          .position = batches_in(sampler.position(), batch_size, false),
          .length = sampler.length(),
          .batch_size = batch_size,
          .num_replicas = core_->num_replicas};
}

void DataLoader::Position::load_state(const DataLoaderState& saved) const {
  auto& sampler = *core_->sampler;
  const auto batch_size = core_->options.batch_size;
  const auto batches = converted_position(saved, state());
  const auto size = batches_in(sampler.size(), batch_size, core_->options.drop_last);
  if (batches < 0 || batches > size) {
    throw UsageError("the saved loader position is batch " + std::to_string(batches) + ", but an epoch has " +
                     std::to_string(size) + " batches. Continue with the same data set and options.");
  }
  sampler.load_state({saved.seed, saved.epoch, std::min(batches * batch_size, sampler.size()), saved.length});
  if (const auto pass = core_->pass.lock()) pass->stop();
}

std::optional<DataLoaderProgress> DataLoader::Position::progress() const {
  const auto pass = core_->pass.lock();
  if (!pass || pass->is_stopped()) return std::nullopt;
  const auto& sampler = *core_->sampler;
  const auto batch_size = core_->options.batch_size;
  return DataLoaderProgress{.pass = core_->pass_number,
                            .position = batches_in(sampler.position(), batch_size, false),
                            .size = batches_in(sampler.size(), batch_size, core_->options.drop_last)};
}

DataLoader::Iterator::Iterator(std::shared_ptr<Pass> pass) : pass_(std::move(pass)) { ++*this; }

DataLoader::Iterator::Iterator(Iterator&&) noexcept = default;
DataLoader::Iterator& DataLoader::Iterator::operator=(Iterator&&) noexcept = default;
DataLoader::Iterator::~Iterator() = default;

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  auto batch = pass_->next();
  if (batch) {
    batch_ = std::move(*batch);
  } else {
    pass_.reset();
  }
  return *this;
}

}  // namespace lockstep
