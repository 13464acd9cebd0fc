#include "models/packed_product.hpp"

#include <algorithm>

#include "kernels/fused_kernels.hpp"
#include "kernels/linear.hpp"

namespace lockstep::models {

at::Tensor packed_product(const at::Tensor& input, const std::vector<Linear>& layers) {
  const auto dtype = kernels::fused_dtype(input);
  const Linear& first = layers.front();
  const bool is_packed = dtype && input.numel() > 0 && std::ranges::all_of(layers, [&](const Linear& layer) {
                           return !layer->has_adapter() && layer->weight.is_floating_point() &&
                                  layer->bias.defined() == first->bias.defined() &&
                                  layer->weight.scalar_type() == first->weight.scalar_type();
                         });
  if (!is_packed) return {};
  std::vector<at::Tensor> weights, biases;
  for (const auto& layer : layers) {
    weights.push_back(layer->weight);
    if (layer->bias.defined()) biases.push_back(layer->bias);
  }
  return kernels::linear(input, weights, biases, *dtype);
}

}  // namespace lockstep::models
