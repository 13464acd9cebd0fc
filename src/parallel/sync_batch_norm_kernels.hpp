#pragma once

#include <optional>

#include "lockstep/parallel/sync_batch_norm.hpp"

namespace lockstep {

/// What an autograd function takes in place of a tensor that may be undefined.
using MaybeTensor = std::optional<at::Tensor>;
inline MaybeTensor maybe(const at::Tensor& tensor) {
  return tensor.defined() ? MaybeTensor(tensor) : std::nullopt;
}

/// sync_batch_norm() by the kernels that torch.nn.SyncBatchNorm has on CUDA, in its order, so that results
/// are PyTorch's. The host never waits for the device: so nobody checks whether there are two values a
/// channel. Sums are of float32, or of float64 where `input` is.
at::Tensor sync_batch_norm_by_kernels(const at::Tensor& input, const at::Tensor& weight,
                                      const at::Tensor& bias, const BatchNormStatistics& running,
                                      double momentum, double eps, const ProcessGroup& group);

}  // namespace lockstep
