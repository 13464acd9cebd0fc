#pragma once

#include <torch/nn/module.h>

namespace lockstep::models {

/// Draws new weights of linear layers and embeddings from a normal distribution and clears biases and
/// paddings, as transformers' models do; other modules keep theirs.
void initialize(torch::nn::Module& module, double spread);

}  // namespace lockstep::models
