#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// In what units the order of an epoch is dealt to the ranks.
enum class Sharding {
  /// Sample for sample: rank r takes the samples r, r + ranks, r + 2 ranks, ... of the order, as PyTorch's
  /// DistributedSampler does. The order is filled up until every rank has equally many samples.
  by_sample,
  /// Batch for batch: rank r takes the batches r, r + ranks, ... of the order, as Hugging Face Accelerate
  /// does. The order is filled up until every rank has equally many batches of equal size. Batches gathered
  /// from all ranks are in the order of the sampler.
  by_batch,
};

/// "by_sample" or "by_batch", for options and error texts. *Local*.
std::string to_string(Sharding sharding);

/// How the ranks divide an epoch. The defaults are those of PyTorch's DistributedSampler.
struct ShardingOptions {
  Sharding sharding = Sharding::by_sample;
  /// The loader's batch size is that of all ranks together, of which each takes an equal part; it must be
  /// divisible by the number of ranks. Otherwise the batch size counts for each rank.
  bool split_batches = false;
  /// Repeat samples from the order's beginning (as often as needed), so that every rank has as much to do as
  /// the others; repeated samples are marked in Batch::valid. Without it the last ranks may have one batch,
  /// or one sample, less: for evaluation, or under join. Not used with drop_last.
  bool even_batches = true;
  /// Of a stream: rank 0 alone reads it, and sends each rank its slice of every batch. For streams that only
  /// one process can read; otherwise every rank reads its own part, and nothing that it drops. A data set of
  /// samples is divided as ever.
  bool dispatch_batches = false;
};

/// What a rank's batches depend on.
struct BatchPlanOptions {
  ShardingOptions how = {};
  /// Of how many ranks the batches are for which one: 0 <= rank < num_replicas.
  int num_replicas = 1;
  int rank = 0;
  /// As DataLoaderOptions::batch_size: of one rank, or of all with split_batches.
  std::int64_t batch_size = 1;
  /// Leave out what does not fill a batch on every rank, instead of repeating samples.
  bool drop_last = false;
};

/// Throws UsageError for a rank, a number of ranks or a batch size out of range, or a batch size that
/// split_batches cannot divide. *Local*.
void check_plan_options(const BatchPlanOptions& options);

/// The samples of a batch of one rank, and of the batches that all ranks read at the same time. *Local*.
std::int64_t rank_batch_size(const BatchPlanOptions& options);
std::int64_t global_batch_size(const BatchPlanOptions& options);

/// How many batches a rank reads where `left` samples of the order are left. *Local*, takes no time.
std::int64_t count_batches(std::int64_t left, const BatchPlanOptions& options);

/// The batches that one rank reads of what is left of an epoch.
///
/// The rule: of `order` the first `consumed` samples have been read, by however many ranks in whatever
/// batches. What is left is cut, or filled up from the beginning of `order`, to a length that divides, and
/// dealt to the ranks. So a run may go on with any number of ranks and any batch size, and reads each sample
/// that was not read yet. With the same numbers of both, it goes on with the very batches that would have
/// come.
///
/// With nothing consumed, by_sample gives DistributedSampler's indices and by_batch those of Accelerate's
/// BatchSamplerShard, index for index. A single rank never repeats a sample.
///
/// *Local*. Reading is safe from several threads.
class BatchPlan {
 public:
  /// `order`: the indices of the whole epoch, the same on every rank. Throws UsageError as
  /// check_plan_options() does and for `consumed` out of 0 to the order's length. Takes 8 bytes for each of
  /// this rank's samples.
  BatchPlan(std::span<const std::int64_t> order, std::int64_t consumed, const BatchPlanOptions& options);

  /// The number of batches.
  std::int64_t count() const noexcept;

  /// The indices of batch `number`, 0 <= number < count().
  std::span<const std::int64_t> indices(std::int64_t number) const;

  /// How many rows of that batch, from the first one on, are no repetitions.
  std::int64_t valid_rows(std::int64_t number) const;

  /// How many samples of the order have been read by all ranks together when each has read its batch
  /// `number`; repetitions do not count.
  std::int64_t consumed_after(std::int64_t number) const noexcept;

 private:
  std::vector<std::int64_t> indices_;
  std::int64_t valid_ = 0;
  std::int64_t length_;
  std::int64_t consumed_;
  std::int64_t batch_size_;
  std::int64_t global_batch_size_;
};

}  // namespace lockstep
