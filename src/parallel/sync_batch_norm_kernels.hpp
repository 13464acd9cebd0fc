#pragma once

#include <torch/custom_class.h>

#include <optional>
#include <utility>

#include "parallel/sync_batch_norm.hpp"

namespace lockstep {

/// Argument of an autograd function for a tensor that may be undefined.
using MaybeTensor = std::optional<at::Tensor>;
inline MaybeTensor maybe(const at::Tensor& tensor) {
  return tensor.defined() ? MaybeTensor(tensor) : std::nullopt;
}

/// A group that an autograd graph keeps.
struct HeldGroup : torch::CustomClassHolder {
  explicit HeldGroup(ProcessGroup held) : group(std::move(held)) {}
  ProcessGroup group;
};

/// sync_batch_norm() with the CUDA kernels of torch.nn.SyncBatchNorm, in its order, so that results are
/// PyTorch's. The host never waits for the device, so it does not check for two values per channel. Sums are
/// float32, or float64 if `input` is.
at::Tensor sync_batch_norm_by_kernels(const at::Tensor& input, const at::Tensor& weight,
                                      const at::Tensor& bias, const BatchNormStatistics& running,
                                      double momentum, double eps, const ProcessGroup& group);

}  // namespace lockstep
