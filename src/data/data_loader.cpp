#include "lockstep/data/data_loader.hpp"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <string>

#include "batch_reader.hpp"
#include "lockstep/core/error.hpp"
#include "prefetcher.hpp"

namespace lockstep {

/// What a loader and its pass share.
struct DataLoader::Core {
  std::shared_ptr<const Dataset> dataset;
  DataLoaderOptions options;
  BatchPlanOptions plan;
  std::shared_ptr<const Sampler> sampler;
  std::int64_t epoch = 0;
  std::int64_t consumed = 0;
  std::weak_ptr<Pass> pass = {};
  std::uint64_t pass_number = 0;
  std::unique_ptr<Prefetcher> workers = nullptr;

  std::int64_t batches() const { return count_batches(sampler->size(), plan); }
  std::int64_t batches_left() const { return count_batches(sampler->size() - consumed, plan); }
  std::uint64_t seed() const { return options.sampler ? sampler->seed() : options.seed; }
  BatchPlan plan_rest() const { return BatchPlan(sampler->epoch_indices(epoch), consumed, plan); }
  void go_to(std::int64_t new_epoch, std::int64_t new_consumed) noexcept {
    epoch = new_epoch;
    consumed = new_consumed;
  }
};

/// One pass over what is left of an epoch.
class DataLoader::Pass {
 public:
  explicit Pass(std::shared_ptr<Core> core);
  ~Pass() { stop(); }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  /// The next batch, which counts as consumed from now on; at the end of the epoch nothing, and the epoch is
  /// finished.
  std::optional<Batch> next();
  void stop() noexcept;
  bool is_stopped() const noexcept { return stopped_; }

 private:
  std::optional<PrefetchedBatch> read();

  std::shared_ptr<Core> core_;
  BatchReader reader_;
  std::int64_t given_ = 0;
  bool stopped_ = false;
};

namespace {

/// The order of the batches of a batch sampler, which is dealt to the ranks in place of samples.
class BatchNumbers final : public Sampler {
 public:
  BatchNumbers(const BatchSampler& batches, std::uint64_t seed)
      : Sampler(batches.size(), seed), kind_(batches.kind()) {}

  std::int64_t size() const override { return length(); }
  std::vector<std::int64_t> epoch_indices(std::int64_t) const override {
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(length()));
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
  }
  std::string kind() const override { return kind_; }

 private:
  std::string kind_;
};

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
  if (options.batch_sampler &&
      (options.batch_size != 1 || options.shuffle || options.drop_last || options.sampler)) {
    throw UsageError(
        "DataLoader: batch_sampler makes the batches; batch_size, shuffle, drop_last and sampler cannot be "
        "given beside it.");
  }
}

std::shared_ptr<const Sampler> make_sampler(const DataLoaderOptions& options, std::int64_t length) {
  if (options.batch_sampler) return std::make_shared<BatchNumbers>(*options.batch_sampler, options.seed);
  if (!options.sampler && options.shuffle) {
    return std::make_shared<RandomSampler>(length, RandomSamplerOptions{.seed = options.seed});
  }
  if (!options.sampler) return std::make_shared<SequentialSampler>(length);
  if (options.sampler->length() == length) return options.sampler;
  throw UsageError("DataLoader: the sampler was made for a data set of " +
                   std::to_string(options.sampler->length()) + " samples, but this one has " +
                   std::to_string(length) + ".");
}

void check_undivided(int num_replicas, const char* what) {
  if (num_replicas == 1) return;
  throw UsageError("DataLoader: this " + std::string(what) + " is divided between " +
                   std::to_string(num_replicas) + " ranks already. Prepare a loader of all samples.");
}

/// The batches of an epoch of a batch sampler; none without one.
std::vector<std::vector<std::int64_t>> own_batches(const BatchSampler* sampler, std::int64_t epoch) {
  if (!sampler) return {};
  auto batches = sampler->epoch_batches(epoch);
  if (std::ssize(batches) != sampler->size()) {
    throw UsageError("DataLoader: the batch sampler gives " + std::to_string(batches.size()) +
                     " batches in epoch " + std::to_string(epoch) + ", but its size() is " +
                     std::to_string(sampler->size()) + ".");
  }
  const auto empty = std::ranges::find_if(batches, [](const auto& batch) { return batch.empty(); });
  if (empty == batches.end()) return batches;
  throw UsageError("DataLoader: the batch sampler's batch " + std::to_string(empty - batches.begin()) +
                   " of epoch " + std::to_string(epoch) + " is empty.");
}

void check_same(const char* what, const std::string& saved, const std::string& here) {
  if (saved == here) return;
  throw UsageError("the saved loader position belongs to another order: its " + std::string(what) + " is " +
                   saved + ", this loader's is " + here +
                   ". Continue with the same data set, sampler and seed, or start the epoch anew.");
}

/// A data set that could not say more than its size when the state was saved is known by its size.
void check_dataset(const std::string& saved, const Dataset& dataset) {
  if (saved != dataset.Dataset::fingerprint()) check_same("data set", saved, dataset.fingerprint());
}

void check_position(const DataLoaderState& saved, std::int64_t length) {
  if (saved.epoch >= 0 && saved.samples >= 0 && saved.samples <= length) return;
  throw UsageError("the saved loader position is sample " + std::to_string(saved.samples) + " of epoch " +
                   std::to_string(saved.epoch) + ", but an epoch has " + std::to_string(length) +
                   " samples and is counted from 0. Continue with the same data set and sampler.");
}

}  // namespace

DataLoader::Pass::Pass(std::shared_ptr<Core> core)
    : core_(std::move(core)),
      reader_(core_->dataset, core_->options, core_->epoch, core_->batches() - core_->batches_left(),
              core_->plan_rest(), own_batches(core_->options.batch_sampler.get(), core_->epoch)) {
  const auto& options = core_->options;
  if (options.num_workers == 0) return;
  if (!core_->workers) {
    core_->workers = std::make_unique<Prefetcher>(options.num_workers,
                                                  std::int64_t{options.num_workers} * options.prefetch_factor,
                                                  options.worker_init);
  }
  core_->workers->start([this](std::int64_t number) { return reader_.read(number); }, reader_.plan().count());
}

std::optional<Batch> DataLoader::Pass::next() {
  if (stopped_) {
    throw UsageError(
        "this pass over the data loader has ended: a batch failed, or the loader was destroyed, began "
        "another pass, or was moved to another position. Begin a new range-for.");
  }
  std::optional<PrefetchedBatch> batch;
  try {
    batch = read();
  } catch (...) {
    stop();  // going on would skip the batch that failed
    throw;
  }
  if (!batch) {
    stop();
    core_->go_to(core_->epoch + 1, 0);
    return std::nullopt;
  }
  core_->consumed = reader_.plan().consumed_after(given_++);
  return reader_.finish(std::move(*batch));
}

std::optional<PrefetchedBatch> DataLoader::Pass::read() {
  if (core_->workers) return core_->workers->next();
  if (given_ == reader_.plan().count()) return std::nullopt;
  return reader_.read(given_);
}

void DataLoader::Pass::stop() noexcept {
  if (stopped_) return;
  stopped_ = true;
  if (core_->workers) core_->workers->drop();
  if (!core_->options.persistent_workers) core_->workers.reset();
}

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options) {
  if (!dataset) throw UsageError("DataLoader was given no data set.");
  check_options(options);
  auto sampler = make_sampler(options, dataset->size());
  const BatchPlanOptions plan{.batch_size = options.batch_size, .drop_last = options.drop_last};
  core_ = std::make_shared<Core>(Core{std::move(dataset), std::move(options), plan, std::move(sampler)});
}

DataLoader::~DataLoader() { end_work(); }

DataLoader::DataLoader(DataLoader&&) noexcept = default;

DataLoader& DataLoader::operator=(DataLoader&& other) noexcept {
  if (this != &other) {
    end_work();
    core_ = std::move(other.core_);
  }
  return *this;
}

void DataLoader::stop_pass() noexcept {
  if (!core_) return;
  if (const auto pass = core_->pass.lock()) pass->stop();
}

void DataLoader::end_work() noexcept {
  stop_pass();
  // A position_handle() may keep the core, but nobody can read from it any more.
  if (core_) core_->workers.reset();
}

DataLoader::Iterator DataLoader::begin() {
  stop_pass();
  auto pass = std::make_shared<Pass>(core_);
  core_->pass = pass;
  core_->pass_number = next_pass_number();
  return Iterator(std::move(pass));
}

std::int64_t DataLoader::size() const { return core_->batches(); }

void DataLoader::set_epoch(std::int64_t epoch) {
  check_at_least("epoch", epoch, 0);
  if (epoch == core_->epoch) return;
  stop_pass();
  core_->go_to(epoch, 0);
}

std::int64_t DataLoader::epoch() const { return core_->epoch; }

std::int64_t DataLoader::position() const { return core_->batches() - core_->batches_left(); }

void DataLoader::skip_batches(std::int64_t count) {
  const auto left = core_->batches_left();
  if (count < 0 || count > left) {
    throw UsageError("DataLoader: cannot skip " + std::to_string(count) + " batches: " +
                     std::to_string(left) + " of " + std::to_string(size()) + " are left in this epoch.");
  }
  stop_pass();
  const auto consumed = core_->consumed + count * global_batch_size(core_->plan);
  core_->consumed = std::min(consumed, core_->sampler->size());
}

void DataLoader::rewind() {
  stop_pass();
  core_->consumed = 0;
}

const Dataset& DataLoader::dataset() const { return *core_->dataset; }

std::int64_t DataLoader::batch_size() const {
  return core_->options.batch_sampler ? 0 : rank_batch_size(core_->plan);
}

std::int64_t DataLoader::total_batch_size() const {
  return core_->options.batch_sampler ? 0 : global_batch_size(core_->plan);
}

const DataLoaderOptions& DataLoader::options() const { return core_->options; }

DataLoader DataLoader::shard(int num_replicas, int rank, at::Device device,
                             const ShardingOptions& how) const {
  check_undivided(core_->plan.num_replicas, "loader");
  check_undivided(num_replicas == 1 ? 1 : core_->sampler->num_replicas(), "loader's sampler");
  if (core_->options.batch_sampler && how.split_batches) {
    throw UsageError(
        "DataLoader: split_batches cannot divide the batches of a batch_sampler. Leave it out: each rank "
        "reads whole batches.");
  }
  auto options = core_->options;
  options.device = device;
  const BatchPlanOptions plan{how, num_replicas, rank, options.batch_size, options.drop_last};
  check_plan_options(plan);
  DataLoader part;
  part.core_ = std::make_shared<Core>(
      Core{core_->dataset, std::move(options), plan, core_->sampler, core_->epoch, core_->consumed});
  return part;
}

DataLoader DataLoader::with_options(DataLoaderOptions options) const {
  check_undivided(core_->plan.num_replicas, "loader");
  DataLoader other(core_->dataset, std::move(options));
  const bool same_unit = !core_->options.batch_sampler == !other.core_->options.batch_sampler;
  if (!same_unit && core_->consumed > 0) {
    throw UsageError(
        "DataLoader: in the middle of an epoch samples cannot be followed by the batches of a batch_sampler, "
        "nor the other way round.");
  }
  other.core_->go_to(core_->epoch, std::min(core_->consumed, other.core_->sampler->size()));
  return other;
}

DataLoaderState DataLoader::state() const { return position_handle().state(); }

void DataLoader::load_state(const DataLoaderState& saved) { position_handle().load_state(saved); }

DataLoader::Position DataLoader::position_handle() const { return Position(core_); }

DataLoaderState DataLoader::Position::state() const {
  return {.seed = core_->seed(),
          .epoch = core_->epoch,
          .samples = core_->consumed,
          .dataset = core_->dataset->fingerprint(),
          .order = core_->sampler->kind()};
}

void DataLoader::Position::load_state(const DataLoaderState& saved) const {
  check_dataset(saved.dataset, *core_->dataset);
  if (!saved.order.empty()) check_same("order", saved.order, core_->sampler->kind());
  check_same("seed", std::to_string(saved.seed), std::to_string(core_->seed()));
  check_position(saved, core_->sampler->size());
  if (const auto pass = core_->pass.lock()) pass->stop();
  core_->go_to(saved.epoch, saved.samples);
}

std::optional<DataLoaderProgress> DataLoader::Position::progress() const {
  const auto pass = core_->pass.lock();
  if (!pass || pass->is_stopped()) return std::nullopt;
  const auto size = core_->batches();
  return DataLoaderProgress{
      .pass = core_->pass_number, .position = size - core_->batches_left(), .size = size};
}

bool DataLoader::Position::even_batches() const noexcept { return core_->plan.how.even_batches; }

void DataLoader::Position::set_even_batches(bool even_batches) const noexcept {
  core_->plan.how.even_batches = even_batches;
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
