#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/data/sharding.hpp"

namespace lockstep {

/// The number of batches that a rank reads if `left` samples of the order remain. *Local*, takes constant
/// time.
std::int64_t count_batches(std::int64_t left, const BatchPlanOptions& options);

/// The batches that one rank reads of the rest of an epoch.
///
/// The rule: the first `consumed` samples of `order` have been read, by any number of ranks in any batches.
/// The rest is truncated, or extended from the beginning of `order`, to a divisible length and distributed
/// over the ranks. A run can therefore resume with any number of ranks and any batch size, and reads each
/// sample that was not read yet. With the same numbers of both, it continues with the batches that would have
/// come next.
///
/// With nothing consumed, by_sample gives the indices of DistributedSampler and by_batch those of
/// Accelerate's BatchSamplerShard, index for index. A single rank never repeats a sample.
///
/// *Local*. Reading is thread-safe.
class BatchPlan {
 public:
  /// `order`: the indices of the whole epoch, the same on every rank. Throws UsageError as
  /// check_plan_options() does, and if `consumed` is not within 0 to the order's length. Takes 8 bytes per
  /// sample of this rank.
  BatchPlan(std::span<const std::int64_t> order, std::int64_t consumed, const BatchPlanOptions& options);

  /// The number of batches.
  std::int64_t count() const noexcept;

  /// The indices of batch `number`, 0 <= number < count().
  std::span<const std::int64_t> indices(std::int64_t number) const;

  /// The number of leading rows of that batch that are not repetitions.
  std::int64_t valid_rows(std::int64_t number) const;

  /// The number of samples of the order that all ranks together have read when each has read its batch
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
