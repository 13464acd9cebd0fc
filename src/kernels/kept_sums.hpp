#pragma once

#include <ATen/core/Tensor.h>

// Column sums of gradients that the kernel which wrote them had at hand.
namespace lockstep::kernels {

/// Keeps `sums` [width] for whoever gets this very `gradient` [..., width], which is the layer whose bias
/// they are the gradient of. They are dropped with the gradient. Any thread.
void keep_column_sums(const at::Tensor& gradient, const at::Tensor& sums);

/// The sums that were kept, which then are no longer; undefined if there are none, or if the gradient was
/// changed since, as by the sum with another gradient. Any thread.
at::Tensor take_column_sums(const at::Tensor& gradient);

}  // namespace lockstep::kernels
