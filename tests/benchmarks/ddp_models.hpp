#pragma once

// The models of ddp_step.py, written in torch::nn. They take part in no test: only their shapes matter.

#include <torch/nn/module.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <utility>

namespace lockstep::benchmarks {

/// Input and target of one step.
using Example = std::pair<at::Tensor, at::Tensor>;

/// 8 x Linear(1024), 32 rows.
struct MlpImpl : torch::nn::Module {
  MlpImpl();
  at::Tensor forward(const at::Tensor& rows) { return layers->forward(rows); }
  static Example example();

  torch::nn::Sequential layers;
};
TORCH_MODULE(Mlp);

/// ResNet-18 for images of 32 x 32, 32 of them.
struct ResNetImpl : torch::nn::Module {
  ResNetImpl();
  at::Tensor forward(const at::Tensor& images);
  static Example example();

  torch::nn::Sequential stem, blocks;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(ResNet);

/// 6 layers 384 wide with 6 heads, on 4 rows of 64 tokens out of 65.
struct GptImpl : torch::nn::Module {
  GptImpl();
  at::Tensor forward(const at::Tensor& tokens);
  static Example example();

  torch::nn::Embedding words{nullptr}, places{nullptr};
  torch::nn::Sequential blocks;
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Gpt);

}  // namespace lockstep::benchmarks
