#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>

#include "lockstep/parallel/comm_hook.hpp"

namespace lockstep {

/// Names, defaults and meaning as in torch.distributed's PowerSGDState.
struct PowerSgdOptions {
  /// Columns of the two thin matrices that stand for a gradient. Usually 1 to 4.
  std::int64_t matrix_approximation_rank = 1;
  /// Backwards that average plainly first. At least 2 with error feedback or warm start, since buckets
  /// change after the first one.
  std::int64_t start_iteration = 1000;
  /// A gradient that would not shrink by this factor is averaged plainly.
  double min_compression_rate = 2;
  /// What compression lost is added to the next gradients.
  bool use_error_feedback = true;
  /// Goes on with the last step's matrices instead of random ones.
  bool warm_start = true;
  /// Added to norms, against division by 0 where a gradient may vanish.
  double orthogonalization_epsilon = 0;
  std::uint32_t random_seed = 0;
  /// Compresses gradients of one shape in one operation.
  bool batch_tensors_with_same_shape = false;
};

/// How much PowerSgdHook has spared so far: numbers of gradients.
struct CompressionStatistics {
  std::int64_t before = 0;
  std::int64_t after = 0;
  double rate() const { return after == 0 ? 0 : static_cast<double>(before) / static_cast<double>(after); }
};

/// Sends two thin matrices in place of each gradient that is worth it (PowerSGD, arXiv:1905.13727): the
/// gradients of torch.distributed's powerSGD_hook, random numbers included.
class PowerSgdHook : public CommHook {
 public:
  /// Throws UsageError for options that do not fit.
  explicit PowerSgdHook(const PowerSgdOptions& options = {});
  std::string name() const override;
  FinishBucket start(const GradientBucket& bucket, const ProcessGroup& group) override;
  void buckets_changed() override;
  const CompressionStatistics& statistics() const { return statistics_; }

 protected:
  virtual FinishBucket compress(const GradientBucket& bucket, const ProcessGroup& group);

  /// Adds what was lost last time, and keeps a copy to find out what is lost this time.
  void add_error(std::size_t bucket, const at::Tensor& gradients);
  void keep_error(std::size_t bucket, const at::Tensor& restored);
  /// The seed of the next random matrices: the same on all ranks.
  std::uint32_t next_seed();

  PowerSgdOptions options_;
  CompressionStatistics statistics_;
  std::int64_t iteration_ = 0;
  std::mt19937 seeds_;
  std::map<std::size_t, at::Tensor> errors_;
  std::map<std::size_t, at::Tensor> ps_;
  std::map<std::size_t, at::Tensor> qs_;
};

/// Compresses each bucket as one square matrix: faster, and usually less exact. As batched_powerSGD_hook.
class BatchedPowerSgdHook : public PowerSgdHook {
 public:
  using PowerSgdHook::PowerSgdHook;
  std::string name() const override { return "batched " + PowerSgdHook::name(); }

 private:
  FinishBucket compress(const GradientBucket& bucket, const ProcessGroup& group) override;
};

}  // namespace lockstep
