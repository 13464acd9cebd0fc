#include <algorithm>
#include <numeric>

#include "lockstep/core/error.hpp"
#include "train/trainer/trainer_impl.hpp"

namespace lockstep {
namespace {

/// The first `count` samples; all if `count` is 0.
std::shared_ptr<const Dataset> first_of(std::shared_ptr<const Dataset> dataset, std::int64_t count) {
  if (count <= 0 || count >= dataset->size()) return dataset;
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  return std::make_shared<Subset>(std::move(dataset), std::move(indices));
}

/// The first samples of another order in each epoch.
class FirstSamples final : public Sampler {
 public:
  FirstSamples(std::shared_ptr<const Sampler> order, std::int64_t count)
      : Sampler(order->length(), order->seed()), order_(std::move(order)), count_(count) {}

  std::int64_t size() const override { return std::min(count_, order_->size()); }
  std::vector<std::int64_t> epoch_indices(std::int64_t epoch) const override {
    auto indices = order_->epoch_indices(epoch);
    indices.resize(static_cast<std::size_t>(size()));
    return indices;
  }
  std::string kind() const override { return order_->kind(); }

 private:
  std::shared_ptr<const Sampler> order_;
  std::int64_t count_;
};

DataLoaderOptions options_of(const TrainingArguments& args, std::int64_t batch_size,
                             const CollateFunction& collate) {
  return {.batch_size = batch_size,
          .num_workers = args.dataloader_num_workers,
          .prefetch_factor = args.dataloader_prefetch_factor,
          .seed = args.data_seed.value_or(args.seed),
          .collate = collate,
          .pin_memory = args.dataloader_pin_memory,
          .non_blocking = args.non_blocking,
          .persistent_workers = args.dataloader_persistent_workers};
}

void check_has(const Example& example, const std::string& column) {
  if (example.contains(column)) return;
  std::string names;
  for (const auto& [name, tensor] : example.items()) names += (names.empty() ? "" : ", ") + name;
  throw UsageError("train_sampling_strategy group_by_length: length_column_name is '" + column +
                   "', which the samples do not have: there are " + names);
}

/// The size of each sample's tensor in its first dimension: reads the data set once.
std::vector<std::int64_t> lengths_of(const Dataset& dataset, const std::string& column) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t index = 0; index < dataset.size(); ++index) {
    const Example example = dataset.get_named(index, {});
    check_has(example, column);
    const at::Tensor& tensor = example[column];
    lengths.push_back(tensor.dim() == 0 ? tensor.item<std::int64_t>() : tensor.size(0));
  }
  return lengths;
}

/// Rejects arguments that need samples by index.
void check_stream_arguments(const TrainingArguments& args, const TrainerComponents& parts) {
  if (parts.train_dataset)
    throw UsageError("Trainer: both train_dataset and train_stream are set; leave one of them out");
  if (args.limit_train_batches > 0)
    throw UsageError("limit_train_batches: a stream has no length to limit; take() its first rows");
  if (args.train_sampling_strategy == SamplingStrategy::group_by_length)
    throw UsageError(
        "train_sampling_strategy group_by_length needs the lengths of all samples, which a stream "
        "does not tell");
}

/// The loader reads the first `count` samples of each epoch's own order.
void limit(DataLoaderOptions& options, std::int64_t length, std::int64_t count) {
  std::shared_ptr<const Sampler> order = options.sampler;
  if (!order && options.shuffle) {
    order = std::make_shared<RandomSampler>(length, RandomSamplerOptions{.seed = options.seed});
  } else if (!order) {
    order = std::make_shared<SequentialSampler>(length);
  }
  options.shuffle = false;
  options.sampler = std::make_shared<FirstSamples>(std::move(order), count);
}

}  // namespace

DataLoader Trainer::get_train_dataloader() {
  const auto [accelerator, args, parts] = std::tie(impl_->accelerator, impl_->args, impl_->parts);
  if (parts.train_stream) {
    check_stream_arguments(args, parts);
    auto options = options_of(args, args.per_device_train_batch_size, parts.data_collator);
    options.drop_last = args.dataloader_drop_last;
    return DataLoader(parts.train_stream, options);
  }
  if (!parts.train_dataset)
    throw UsageError(
        "Trainer: there is no training data set: set TrainerComponents::train_dataset or train_stream");
  const std::int64_t ranks = args.split_batches ? 1 : accelerator.num_processes();
  const std::int64_t at_once = args.per_device_train_batch_size * ranks;
  auto options = options_of(args, args.per_device_train_batch_size, parts.data_collator);
  options.shuffle = args.train_sampling_strategy == SamplingStrategy::random;
  options.drop_last = args.dataloader_drop_last;
  // A global batch determines the accumulation steps only when the loader is prepared.
  const std::int64_t of_a_step = args.global_batch_size > 0
                                     ? args.global_batch_size
                                     : at_once * accelerator.gradient_accumulation_steps();
  const auto& dataset = parts.train_dataset;
  if (args.train_sampling_strategy == SamplingStrategy::group_by_length) {
    options.sampler = std::make_shared<LengthGroupedSampler>(
        lengths_of(*dataset, args.length_column_name),
        LengthGroupedOptions{.batch_size = of_a_step, .seed = options.seed});
  }
  if (args.limit_train_batches > 0) limit(options, dataset->size(), args.limit_train_batches * at_once);
  return DataLoader(dataset, options);
}

DataLoader Trainer::get_eval_dataloader(std::shared_ptr<const Dataset> dataset) {
  const TrainingArguments& args = impl_->args;
  const auto options = options_of(args, args.per_device_eval_batch_size, impl_->parts.data_collator);
  if (!dataset) return DataLoader(impl_->parts.eval_stream, options);
  const std::int64_t batches = evaluated_batches(args);
  const std::int64_t at_once = args.per_device_eval_batch_size * impl_->accelerator.num_processes();
  return DataLoader(first_of(std::move(dataset), batches * at_once), options);
}

DataLoader Trainer::get_test_dataloader(std::shared_ptr<const Dataset> dataset) {
  return get_eval_dataloader(std::move(dataset));
}

}  // namespace lockstep
