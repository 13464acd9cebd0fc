#include "initialize.hpp"

#include <torch/nn/init.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

namespace lockstep::models {

void initialize(torch::nn::Module& module, double spread) {
  const at::NoGradGuard no_grad;
  if (auto* linear = module.as<torch::nn::LinearImpl>()) {
    torch::nn::init::normal_(linear->weight, 0, spread);
    linear->bias.zero_();
  } else if (auto* embedding = module.as<torch::nn::EmbeddingImpl>()) {
    torch::nn::init::normal_(embedding->weight, 0, spread);
    if (const auto padding = embedding->options.padding_idx()) embedding->weight[*padding].zero_();
  }
}

}  // namespace lockstep::models
