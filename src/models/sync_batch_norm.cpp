#include "lockstep/models/sync_batch_norm.hpp"

#include <ATen/ATen.h>

#include "lockstep/core/error.hpp"
#include "parallel/sync_batch_norm.hpp"

namespace lockstep::models {

SyncBatchNormImpl::SyncBatchNormImpl(const SyncBatchNormOptions& options, const ProcessGroup& group)
    : options_(options), group_(group) {
  if (options.num_features < 1) throw UsageError("SyncBatchNorm needs num_features of at least 1.");
  if (options.affine) {
    weight = register_parameter("weight", at::ones({options.num_features}));
    bias = register_parameter("bias", at::zeros({options.num_features}));
  }
  if (!options.track_running_stats) return;
  running_mean = register_buffer("running_mean", at::zeros({options.num_features}));
  running_var = register_buffer("running_var", at::ones({options.num_features}));
  num_batches_tracked = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
}

double SyncBatchNormImpl::next_momentum() {
  if (num_batches_tracked.defined()) num_batches_tracked.add_(1);
  if (options_.momentum) return *options_.momentum;
  return num_batches_tracked.defined() ? 1.0 / static_cast<double>(num_batches_tracked.item<std::int64_t>())
                                       : 0;
}

at::Tensor SyncBatchNormImpl::forward(const at::Tensor& input) {
  const bool uses_batch = is_training() || !options_.track_running_stats;
  if (!uses_batch || group_.size() == 1) {
    // The variance of fewer would make the running statistics NaN.
    if (uses_batch && input.dim() >= 2 && input.numel() < 2 * input.size(1))
      throw UsageError("SyncBatchNorm expects more than one value a channel when training.");
    const double momentum = is_training() ? next_momentum() : 0;
    return at::batch_norm(input, weight, bias, running_mean, running_var, uses_batch, momentum, options_.eps,
                          /*cudnn_enabled=*/true);
  }
  const BatchNormStatistics running =
      is_training() ? BatchNormStatistics{running_mean, running_var} : BatchNormStatistics{};
  return sync_batch_norm(input, weight, bias, running, is_training() ? next_momentum() : 0, options_.eps,
                         group_);
}

}  // namespace lockstep::models
