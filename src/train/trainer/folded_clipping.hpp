#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/train/trainer.hpp"

namespace lockstep::train {

/// Clipping of gradients by the optimizer's step, which multiplies them on the way instead of in a pass of
/// its own over all of them, with the same weights. Their `.grad` are not clipped then, so it is only for a
/// training in which nothing can see them between clipping and zero_grad().
class FoldedClipping {
 public:
  /// Whether a training can do so: with an optimizer of this library, float32 parameters on one GPU, and no
  /// callbacks but this library's.
  static bool is_possible(Trainer& trainer, torch::optim::Optimizer& optimizer);

  explicit FoldedClipping(const at::Device& device);

  /// The norm of these parameters' gradients, as Accelerator::clip_grad_norm_ returns it. Nothing is clipped.
  at::Tensor measure(Accelerator& accelerator, const std::vector<at::Tensor>& parameters, double max_norm);

  /// By which the step has to multiply the gradients that were measured last: in the same memory for all
  /// steps, so that a recorded step reads it there.
  const at::Tensor& factor() const noexcept { return factor_; }

 private:
  at::Tensor factor_;
};

}  // namespace lockstep::train
