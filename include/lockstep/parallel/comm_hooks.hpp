#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/parallel/comm_hook.hpp"

namespace lockstep {

/// The plain average: the same gradients as without a hook, as torch.distributed's allreduce_hook.
class AllReduceHook : public CommHook {
 public:
  std::string name() const override { return "all_reduce"; }
  FinishBucket start(const GradientBucket& bucket, const ProcessGroup& group) override;
};

/// Sends gradients in float16 or bfloat16: half the bytes, as fp16_compress_hook and bf16_compress_hook. Each
/// rank's gradients are divided before they are sent, so that sums over many ranks do not overflow.
class CompressHook : public CommHook {
 public:
  /// Throws UsageError for dtypes other than at::kHalf and at::kBFloat16.
  explicit CompressHook(at::ScalarType type);
  std::string name() const override;
  FinishBucket start(const GradientBucket& bucket, const ProcessGroup& group) override;

 private:
  at::ScalarType type_;
};

/// Runs another hook on float16 or bfloat16 gradients, as fp16_compress_wrapper and bf16_compress_wrapper.
class CompressWrapper : public CommHook {
 public:
  /// Throws UsageError for dtypes other than at::kHalf and at::kBFloat16, and if the hook is null.
  CompressWrapper(at::ScalarType type, std::shared_ptr<CommHook> inner);
  std::string name() const override;
  FinishBucket start(const GradientBucket& bucket, const ProcessGroup& group) override;
  void buckets_changed() override { inner_->buckets_changed(); }

 private:
  at::ScalarType type_;
  std::shared_ptr<CommHook> inner_;
};

struct QuantizationOptions {
  /// Number of gradients that share one scale; 0: all of a bucket.
  std::int64_t channel = 0;
};

/// Each rank sends its gradients as bytes, with a scale and a zero point, to every other rank, which adds
/// them up: as torch.distributed's quantization_pertensor_hook, and with `channel` (512 there) as
/// quantization_perchannel_hook. Only useful for few ranks: what a rank receives grows with their number.
class QuantizationHook : public CommHook {
 public:
  explicit QuantizationHook(const QuantizationOptions& options = {});
  std::string name() const override;
  FinishBucket start(const GradientBucket& bucket, const ProcessGroup& group) override;

 private:
  QuantizationOptions options_;
};

}  // namespace lockstep
