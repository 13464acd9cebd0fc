#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <optional>

#include "lockstep/comm/process_group.hpp"

namespace lockstep::models {

/// Names, defaults and meaning as in torch.nn.SyncBatchNorm.
struct SyncBatchNormOptions {
  std::int64_t num_features = 0;
  double eps = 1e-5;
  /// The share of a new batch in the running statistics; nothing: the plain mean over all batches.
  std::optional<double> momentum = 0.1;
  bool affine = true;
  bool track_running_stats = true;
};

/// Batch normalisation over the batches of all ranks together: torch.nn.SyncBatchNorm, for inputs of two
/// dimensions and more. Parameters and buffers have the names and shapes of torch::nn::BatchNorm1d to 3d, so
/// that their checkpoints fit.
///
/// A model names it where it would name BatchNorm2d: in C++ a module that was made with BatchNorm2d cannot be
/// converted, because its forward calls that very type.
class SyncBatchNormImpl : public torch::nn::Module {
 public:
  /// Throws UsageError without features.
  SyncBatchNormImpl(const SyncBatchNormOptions& options, const ProcessGroup& group);

  /// In training *Collective*: see sync_batch_norm. In evaluation *Local*, by the running statistics.
  at::Tensor forward(const at::Tensor& input);

  at::Tensor weight, bias;
  at::Tensor running_mean, running_var, num_batches_tracked;

 private:
  double next_momentum();

  SyncBatchNormOptions options_;
  ProcessGroup group_;
};
TORCH_MODULE(SyncBatchNorm);

}  // namespace lockstep::models
