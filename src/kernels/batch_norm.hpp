#pragma once

#include <ATen/core/Tensor.h>

// Batch normalization in training with what follows it in a residual network, as few passes over the memory:
// relu(norm(input) + residual).
namespace lockstep::kernels {

/// The tensors of a torch.nn.BatchNorm2d, and its options.
struct BatchNorm {
  /// [channels], float32.
  at::Tensor weight, bias;
  /// The same, updated with the batch's; undefined: none.
  at::Tensor running_mean, running_var;
  /// A scalar, int64, which is increased by 1; undefined: none.
  at::Tensor num_batches_tracked;
  double momentum = 0.1, eps = 1e-5;
};

/// Whether batch_norm() takes these: bfloat16 or float16 on a GPU, [rows, channels, height, width] with
/// channels last, of a multiple of 8 channels; the residual, if defined, like it.
bool takes_batch_norm(const BatchNorm& norm, const at::Tensor& input, const at::Tensor& residual, bool relu);

/// norm(input), + `residual` if that is defined, and relu of it if `relu`: all computed in float32 and
/// rounded once. The same bits in every run. No second derivatives. Changes the running statistics. *Local*.
at::Tensor batch_norm(const BatchNorm& norm, const at::Tensor& input, const at::Tensor& residual, bool relu);

}  // namespace lockstep::kernels
