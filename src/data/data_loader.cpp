#include "lockstep/data/data_loader.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <string>

#include "core/runtime/rank_counters.hpp"
#include "data/data_loader_pass.hpp"
#include "data/same_order.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

/// The numbers of a batch sampler's batches, which are distributed over the ranks in place of samples.
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
  throw UsageError(fmt::format("DataLoader: {} must be {} or more, but is {}.", name, least, value));
}

void check_options(const DataLoaderOptions& options) {
  check_at_least("batch_size", options.batch_size, 1);
  check_at_least("num_workers", options.num_workers, 0);
  check_at_least("prefetch_factor", options.prefetch_factor, 1);
  if (options.batch_sampler &&
      (options.batch_size != 1 || options.shuffle || options.drop_last || options.sampler)) {
    throw UsageError(
        "DataLoader: batch_sampler makes the batches; batch_size, shuffle, drop_last and sampler cannot be "
        "given with it.");
  }
}

std::shared_ptr<const Sampler> make_sampler(const DataLoaderOptions& options, std::int64_t length) {
  if (options.batch_sampler) return std::make_shared<BatchNumbers>(*options.batch_sampler, options.seed);
  if (!options.sampler && options.shuffle) {
    return std::make_shared<RandomSampler>(length, RandomSamplerOptions{.seed = options.seed});
  }
  if (!options.sampler) return std::make_shared<SequentialSampler>(length);
  if (options.sampler->length() == length) return options.sampler;
  throw UsageError(
      fmt::format("DataLoader: the sampler was made for a data set of {} samples, but this one has {}.",
                  options.sampler->length(), length));
}

void check_undivided(int num_replicas, const char* what) {
  if (num_replicas == 1) return;
  throw UsageError(
      fmt::format("DataLoader: this {} is divided between {} ranks already. Prepare a loader of all samples.",
                  what, num_replicas));
}

void check_same(const char* what, const std::string& saved, const std::string& here) {
  if (saved == here) return;
  throw UsageError(
      fmt::format("the saved loader position belongs to another order: its {} is {}, this loader's is {}. "
                  "Continue with the same data set, sampler and seed (a Trainer's data_seed); a Trainer with "
                  "ignore_data_skip begins the epoch anew.",
                  what, saved, here));
}

/// If the saved fingerprint consists only of a size (Dataset's default), only the size is compared.
void check_dataset(const std::string& saved, const Dataset& dataset) {
  if (saved != dataset.Dataset::fingerprint()) check_same("data set", saved, dataset.fingerprint());
}

void check_position(const DataLoaderState& saved, std::int64_t length) {
  if (saved.epoch >= 0 && saved.samples >= 0 && saved.samples <= length) return;
  throw UsageError(
      fmt::format("the saved loader position is sample {} of epoch {}, but an epoch has {} samples and is "
                  "counted from 0. Continue with the same data set and sampler.",
                  saved.samples, saved.epoch, length));
}

}  // namespace

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options) {
  if (!dataset) throw UsageError("DataLoader was given no data set.");
  check_options(options);
  auto sampler = make_sampler(options, dataset->size());
  const BatchPlanOptions plan{.batch_size = options.batch_size, .drop_last = options.drop_last};
  core_ =
      std::make_shared<Core>(Core{std::move(dataset), nullptr, std::move(options), plan, std::move(sampler)});
}

DataLoader::DataLoader(std::shared_ptr<const StreamDataset> stream, DataLoaderOptions options) {
  if (!stream) throw UsageError("DataLoader was given no stream.");
  check_options(options);
  if (options.shuffle || options.sampler || options.batch_sampler) {
    throw UsageError(
        "DataLoader: a stream has its own order, so shuffle, sampler and batch_sampler cannot be given with "
        "one. Shuffle the stream.");
  }
  const BatchPlanOptions plan{.batch_size = options.batch_size, .drop_last = options.drop_last};
  core_ = std::make_shared<Core>(Core{nullptr, std::move(stream), std::move(options), plan, nullptr});
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
  // A position_handle() may keep the core alive, but nothing reads from it any more.
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

bool DataLoader::has_size() const noexcept { return core_->known_batches().has_value(); }

bool DataLoader::is_stream() const noexcept { return core_->stream != nullptr; }

void DataLoader::set_epoch(std::int64_t epoch) {
  check_at_least("epoch", epoch, 0);
  if (epoch == core_->epoch) return;
  stop_pass();
  core_->go_to(epoch, 0);
}

std::int64_t DataLoader::epoch() const { return core_->epoch; }

std::int64_t DataLoader::position() const { return core_->position(); }

void DataLoader::skip_batches(std::int64_t count) {
  if (core_->stream) return skip_of_stream(count);
  const auto left = core_->batches_left();
  if (count < 0 || count > left) {
    throw UsageError(fmt::format("DataLoader: cannot skip {} batches: {} of {} are left in this epoch.",
                                 count, left, size()));
  }
  stop_pass();
  const auto consumed = core_->consumed + count * global_batch_size(core_->plan);
  core_->consumed = std::min(consumed, core_->sampler->size());
}

void DataLoader::skip_of_stream(std::int64_t count) {
  check_at_least("the number of batches to skip", count, 0);
  stop_pass();
  const auto before = state();
  Pass pass(core_);
  for (std::int64_t skipped = 0; skipped < count; ++skipped) {
    if (pass.next()) continue;
    pass.stop();
    load_state(before);
    throw UsageError(fmt::format(
        "DataLoader: cannot skip {} batches: the stream had only {} more in this epoch.", count, skipped));
  }
}

void DataLoader::rewind() {
  stop_pass();
  core_->go_to(core_->epoch, 0);
}

const Dataset& DataLoader::dataset() const {
  if (core_->dataset) return *core_->dataset;
  throw UsageError("DataLoader: this loader reads a stream, so there is no data set of samples.");
}

std::int64_t DataLoader::batch_size() const {
  return core_->options.batch_sampler ? 0 : rank_batch_size(core_->plan);
}

std::int64_t DataLoader::total_batch_size() const {
  return core_->options.batch_sampler ? 0 : global_batch_size(core_->plan);
}

const DataLoaderOptions& DataLoader::options() const { return core_->options; }

DataLoader DataLoader::shard(int num_replicas, int rank, at::Device device,
                             const ShardingOptions& how) const {
  const bool need_group = core_->stream && num_replicas > 1 && (how.even_batches || how.dispatch_batches);
  if (need_group) {
    throw UsageError(
        "DataLoader: even_batches and dispatch_batches of a stream need the process group of its ranks. Give "
        "it to shard(), or turn both off.");
  }
  return divided({how, num_replicas, rank, core_->options.batch_size, core_->options.drop_last}, device,
                 std::nullopt);
}

DataLoader DataLoader::shard(const ProcessGroup& group, at::Device device, const ShardingOptions& how) const {
  return divided({how, group.size(), group.rank(), core_->options.batch_size, core_->options.drop_last},
                 device, group);
}

DataLoader DataLoader::divided(const BatchPlanOptions& plan, at::Device device,
                               const std::optional<ProcessGroup>& group) const {
  check_undivided(core_->plan.num_replicas, "loader");
  if (core_->sampler)
    check_undivided(plan.num_replicas == 1 ? 1 : core_->sampler->num_replicas(), "loader's sampler");
  if (core_->options.batch_sampler && plan.how.split_batches) {
    throw UsageError(
        "DataLoader: split_batches cannot split the batches of a batch_sampler. Leave it out: each rank "
        "reads whole batches.");
  }
  check_plan_options(plan);
  DataLoader part;
  part.core_ = std::make_shared<Core>(Core{core_->dataset, core_->stream, core_->options, plan,
                                           core_->sampler, core_->epoch, core_->consumed});
  part.core_->options.device = device;
  part.core_->group = group;
  if (core_->stream && core_->consumed > 0) part.load_state(state());
  return part;
}

DataLoader DataLoader::with_options(DataLoaderOptions options) const {
  check_undivided(core_->plan.num_replicas, "loader");
  if (core_->stream) {
    DataLoader other(core_->stream, std::move(options));
    other.core_->go_to(core_->epoch, core_->consumed, core_->parts);
    return other;
  }
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
          .dataset = core_->fingerprint(),
          .order = core_->order(),
          .parts = core_->parts_as_text()};
}

void DataLoader::Position::load_state(const DataLoaderState& saved) const {
  if (core_->stream) return load_state_of_stream(saved);
  check_dataset(saved.dataset, *core_->dataset);
  const std::string order = core_->sampler->kind();
  if (!data::is_same_order(saved.order, order)) check_same("order", saved.order, order);
  check_same("seed", std::to_string(saved.seed), std::to_string(core_->seed()));
  check_position(saved, core_->sampler->size());
  if (const auto pass = core_->pass.lock()) pass->stop();
  core_->go_to(saved.epoch, saved.samples);
}

void DataLoader::Position::load_state_of_stream(const DataLoaderState& saved) const {
  check_same("order", saved.order, core_->order());
  check_same("stream", saved.dataset, core_->fingerprint());
  check_at_least("the saved epoch", saved.epoch, 0);
  check_at_least("the saved number of batches", saved.samples, 0);
  auto entries = saved.parts;
  // With dispatch_batches only rank 0 has parts.
  std::erase(entries, std::string());
  const auto& plan = core_->plan;
  const bool dispatched = core_->is_dispatched();
  auto parts = entries.empty()
                   ? PartPositions()
                   : deal_parts(entries, dispatched ? 1 : plan.num_replicas, dispatched ? 0 : plan.rank,
                                plan.drop_last && plan.how.even_batches);
  if (const auto pass = core_->pass.lock()) pass->stop();
  // Estimate: another number of ranks reads the same rows in another number of batches per rank.
  const auto saved_by = dispatched ? 1 : std::ssize(entries);
  const auto batches = saved_by > 1 ? saved.samples * saved_by / plan.num_replicas : saved.samples;
  core_->go_to(saved.epoch, batches, std::move(parts));
}

void DataLoader::Position::set_look_ahead(std::int64_t batches) const noexcept {
  core_->look_ahead = std::max<std::int64_t>(batches, 1);
}

bool DataLoader::Position::is_stream() const noexcept { return core_->stream != nullptr; }

std::optional<DataLoaderProgress> DataLoader::Position::progress() const {
  const auto pass = core_->pass.lock();
  if (!pass || pass->is_stopped()) return std::nullopt;
  return DataLoaderProgress{.pass = core_->pass_number, .position = core_->position(), .size = pass->size()};
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
    count_samples(static_cast<std::uint64_t>(batch_.size()));
  } else {
    pass_.reset();
  }
  return *this;
}

}  // namespace lockstep
