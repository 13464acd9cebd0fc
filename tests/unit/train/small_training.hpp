#pragma once

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <memory>

#include "lockstep/data/dataset.hpp"
#include "lockstep/train/accelerator.hpp"

namespace lockstep::testing {

inline AcceleratorOptions accumulating(std::int64_t steps) { return {.gradient_accumulation_steps = steps}; }

inline torch::nn::Linear make_model() {
  const torch::NoGradGuard no_grad;
  torch::nn::Linear model(3, 1);
  model->weight.copy_(torch::tensor({{0.5, -0.25, 1.0}}));
  model->bias.zero_();
  return model;
}

/// Whole numbers, so that sums are exact in any order.
inline at::Tensor rows(std::int64_t count) {
  return torch::arange(count * 3, torch::kFloat).remainder(7).view({count, 3});
}

inline DataLoader make_loader(std::int64_t samples, std::int64_t batch_size) {
  const Batch all{{"x", rows(samples)}, {"number", torch::arange(samples)}};
  return DataLoader(std::make_shared<TensorDataset>(all), {.batch_size = batch_size});
}

}  // namespace lockstep::testing
