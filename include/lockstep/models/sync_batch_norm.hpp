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
  /// The weight of a new batch in the running statistics; unset: the mean over all batches.
  std::optional<double> momentum = 0.1;
  bool affine = true;
  bool track_running_stats = true;
};

/// Batch normalization over the batches of all ranks together: torch.nn.SyncBatchNorm, for inputs of two or
/// more dimensions. Parameters and buffers have the names and shapes of torch::nn::BatchNorm1d to 3d, so that
/// their checkpoints can be loaded.
///
/// Each channel is normalized by the mean and variance over the rows of all ranks, as one process would over
/// the whole batch. Ranks may have different numbers of rows, including none. On CPUs, sums are computed in
/// float64. On CUDA, the kernels of PyTorch's class give its results, without synchronizing the host. The
/// gradients of `weight` and `bias` are this rank's share, as DistributedDataParallel expects; gradients of
/// gradients (create_graph) are those of one process, too.
///
/// Use it in the model in place of BatchNorm2d: in C++ a module with a BatchNorm2d cannot be converted,
/// because its forward calls that type.
class SyncBatchNormImpl : public torch::nn::Module {
 public:
  /// Throws UsageError if num_features is below 1.
  SyncBatchNormImpl(const SyncBatchNormOptions& options, const ProcessGroup& group);

  /// `input`: [rows, channels, ...]. *Collective* in training, and in evaluation without track_running_stats,
  /// and so is its backward; throws UsageError if the input is not floating-point or has fewer than two
  /// dimensions, and on CPUs if all ranks together have fewer than two values per channel. Otherwise *Local*,
  /// with the running statistics.
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
