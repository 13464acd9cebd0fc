#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>

#include "lockstep/parallel/comm_hook.hpp"

namespace lockstep {

/// Names, defaults and meaning as in torch.distributed's PowerSGDState.
struct PowerSgdOptions {
  /// Columns of the two low-rank matrices that approximate a gradient. Usually 1 to 4.
  std::int64_t matrix_approximation_rank = 1;
  /// Number of initial backwards with plain averaging. At least 2 with error feedback or warm start, because
  /// buckets change after the first one.
  std::int64_t start_iteration = 1000;
  /// A gradient that would not shrink by this factor is averaged without compression.
  double min_compression_rate = 2;
  /// Add the compression error to the next gradients.
  bool use_error_feedback = true;
  /// Start from the last step's matrices instead of random ones.
  bool warm_start = true;
  /// Added to norms, to avoid division by 0 if a gradient may vanish.
  double orthogonalization_epsilon = 0;
  std::uint32_t random_seed = 0;
  /// Compress gradients of the same shape in one operation.
  bool batch_tensors_with_same_shape = false;
};

/// Compression of PowerSgdHook so far, in numbers of gradients.
struct CompressionStatistics {
  std::int64_t before = 0;
  std::int64_t after = 0;
  double rate() const { return after == 0 ? 0 : static_cast<double>(before) / static_cast<double>(after); }
};

/// Sends two low-rank matrices instead of each gradient for which this pays (PowerSGD, arXiv:1905.13727): the
/// gradients of torch.distributed's powerSGD_hook, including its random numbers.
class PowerSgdHook : public CommHook {
 public:
  /// Throws UsageError if the options are invalid.
  explicit PowerSgdHook(const PowerSgdOptions& options = {});
  std::string name() const override;
  FinishBucket start(const GradientBucket& bucket, const ProcessGroup& group) override;
  void buckets_changed() override;
  const CompressionStatistics& statistics() const { return statistics_; }

 protected:
  virtual FinishBucket compress(const GradientBucket& bucket, const ProcessGroup& group);

  /// Adds the error of the last step, and keeps a copy from which this step's error is computed.
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

/// Compresses each bucket as one square matrix: faster, and usually less accurate. As batched_powerSGD_hook.
class BatchedPowerSgdHook : public PowerSgdHook {
 public:
  using PowerSgdHook::PowerSgdHook;
  std::string name() const override { return "batched " + PowerSgdHook::name(); }

 private:
  FinishBucket compress(const GradientBucket& bucket, const ProcessGroup& group) override;
};

}  // namespace lockstep
