#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

/// The unit in which an epoch's order is distributed over the ranks.
enum class Sharding {
  /// Samples: rank r takes the samples r, r + ranks, r + 2 ranks, ... of the order, like PyTorch's
  /// DistributedSampler. The order is extended until every rank has the same number of samples.
  by_sample,
  /// Batches: rank r takes the batches r, r + ranks, ... of the order, like Hugging Face Accelerate. The
  /// order is extended until every rank has the same number of batches of equal size. Batches gathered from
  /// all ranks are in the order of the sampler.
  by_batch,
};

/// "by_sample" or "by_batch", for options and error messages. *Local*.
std::string to_string(Sharding sharding);

/// How an epoch is sharded over the ranks. The defaults are those of PyTorch's DistributedSampler.
struct ShardingOptions {
  Sharding sharding = Sharding::by_sample;
  /// The loader's batch size is that of all ranks together and is split equally between them; it must be
  /// divisible by the number of ranks. Otherwise the batch size is per rank.
  bool split_batches = false;
  /// Repeat samples from the order's beginning (as often as needed), so that every rank has the same number;
  /// repeated samples are marked in Batch::valid. If false, the last ranks may have one batch or one sample
  /// less: for evaluation, or under join. Not used with drop_last.
  bool even_batches = true;
  /// For a stream: only rank 0 reads it, and sends each rank its slice of every batch. For streams that only
  /// one process can read; otherwise every rank reads its own part. No effect on a map-style data set.
  bool dispatch_batches = false;
};

/// What determines a rank's batches.
struct BatchPlanOptions {
  ShardingOptions how = {};
  /// The number of ranks, and this rank: 0 <= rank < num_replicas.
  int num_replicas = 1;
  int rank = 0;
  /// As DataLoaderOptions::batch_size: per rank, or of all ranks with split_batches.
  std::int64_t batch_size = 1;
  /// Drop what does not fill a batch on every rank, instead of repeating samples.
  bool drop_last = false;
};

/// Throws UsageError if a rank, a number of ranks or a batch size is out of range, or if split_batches cannot
/// split the batch size. *Local*.
void check_plan_options(const BatchPlanOptions& options);

/// Samples per batch of one rank, and per global batch of all ranks. *Local*.
std::int64_t rank_batch_size(const BatchPlanOptions& options);
std::int64_t global_batch_size(const BatchPlanOptions& options);

}  // namespace lockstep
