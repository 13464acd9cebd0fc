#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>

// What the models for images have in common.
namespace lockstep::models {

/// Throws UsageError, in the name of `model`, unless these are floating-point images [rows, channels, height,
/// width] of at least `height` x `width` pixels.
void check_pixel_values(const char* model, const at::Tensor& pixel_values, std::int64_t channels,
                        std::int64_t height, std::int64_t width);

/// Stochastic depth, in training: each row of `branch` becomes zero with this probability, the others grow.
at::Tensor drop_path(const at::Tensor& branch, double probability, bool is_training);

/// New values as in transformers: matrices and kernels are normal with deviation `spread`, biases zero.
void initialize_vision(torch::nn::Module& module, double spread);

}  // namespace lockstep::models
