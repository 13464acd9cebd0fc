#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace lockstep::kernels {

/// What follows the product of a linear layer.
enum class Activation { none, gelu, gelu_tanh };

struct LinearOptions {
  /// Whether weights are [inputs, outputs], not [outputs, inputs].
  bool is_turned = false;
  Activation activation = Activation::none;
};

/// A linear layer of several weights, whose outputs are one after another: those of one weight are its own,
/// [..., outputs of all]. The weights and biases are float32, or in `dtype`; `biases` are empty, or as many,
/// none of which is undefined.
///
/// In `dtype`, float16 or bfloat16, by the weights' kept copies; the gradients of float32 weights and biases
/// come out of their products in float32, where autocast rounds them to 16 bits before. The result is in
/// `dtype`, the gradient of `input` in its own dtype. No second derivatives. For fused_dtype(input).
at::Tensor linear(const at::Tensor& input, const std::vector<at::Tensor>& weights,
                  const std::vector<at::Tensor>& biases, at::ScalarType dtype,
                  const LinearOptions& options = {});

/// Whether this is what linear() returned, and its backward sums the columns of the gradient for biases: then
/// keep_column_sums() for the gradient saves it the pass.
bool sums_its_gradient(const at::Tensor& output);

}  // namespace lockstep::kernels
