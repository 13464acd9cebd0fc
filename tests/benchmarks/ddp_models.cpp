#include "ddp_models.hpp"

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/types.h>

namespace lockstep::benchmarks {
namespace {

constexpr int kWidth = 1024, kLayers = 8, kRows = 32, kClasses = 10;
constexpr int kTokens = 65, kLength = 64, kEmbedding = 384, kHeads = 6, kBlocks = 6, kSentences = 4;

torch::nn::Conv2d convolution(int inputs, int outputs, int size, int stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(inputs, outputs, size).stride(stride).padding(size / 2).bias(false));
}

struct ResidualImpl : torch::nn::Module {
  ResidualImpl(int inputs, int outputs, int stride) {
    main = register_module(
        "main", torch::nn::Sequential(convolution(inputs, outputs, 3, stride),
                                      torch::nn::BatchNorm2d(outputs), torch::nn::ReLU(),
                                      convolution(outputs, outputs, 3, 1), torch::nn::BatchNorm2d(outputs)));
    if (stride == 1) return;
    side = register_module("side", torch::nn::Sequential(convolution(inputs, outputs, 1, stride),
                                                         torch::nn::BatchNorm2d(outputs)));
  }
  at::Tensor forward(const at::Tensor& x) {
    return torch::relu(main->forward(x) + (side ? side->forward(x) : x));
  }
  torch::nn::Sequential main, side{nullptr};
};
TORCH_MODULE(Residual);

struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    before = register_module("before", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kEmbedding})));
    attention = register_module("attention", torch::nn::Linear(kEmbedding, 3 * kEmbedding));
    projection = register_module("projection", torch::nn::Linear(kEmbedding, kEmbedding));
    wide = register_module(
        "wide", torch::nn::Sequential(torch::nn::LayerNorm(torch::nn::LayerNormOptions({kEmbedding})),
                                      torch::nn::Linear(kEmbedding, 4 * kEmbedding), torch::nn::GELU(),
                                      torch::nn::Linear(4 * kEmbedding, kEmbedding)));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto parts = attention(before(x)).chunk(3, 2);
    const auto heads = [&](const at::Tensor& part) {
      return part.view({x.size(0), x.size(1), kHeads, -1}).transpose(1, 2);
    };
    const auto mixed = at::scaled_dot_product_attention(heads(parts[0]), heads(parts[1]), heads(parts[2]), {},
                                                        0.0, /*is_causal=*/true);
    const at::Tensor attended = x + projection(mixed.transpose(1, 2).reshape(x.sizes()));
    return attended + wide->forward(attended);
  }
  torch::nn::LayerNorm before{nullptr};
  torch::nn::Linear attention{nullptr}, projection{nullptr};
  torch::nn::Sequential wide;
};
TORCH_MODULE(Block);

}  // namespace

MlpImpl::MlpImpl() {
  register_module("layers", layers);
  for (int layer = 0; layer < kLayers; ++layer) {
    layers->push_back(torch::nn::Linear(kWidth, kWidth));
    if (layer + 1 < kLayers) layers->push_back(torch::nn::ReLU());
  }
}

Example MlpImpl::example() {
  return {torch::randn({kRows, kWidth}), torch::randint(0, kWidth, {kRows}, torch::kLong)};
}

ResNetImpl::ResNetImpl() {
  register_module("stem", stem);
  register_module("blocks", blocks);
  stem->push_back(convolution(3, 64, 3, 1));
  stem->push_back(torch::nn::BatchNorm2d(64));
  stem->push_back(torch::nn::ReLU());
  int width = 64;
  for (const int next : {64, 128, 256, 512}) {
    blocks->push_back(Residual(width, next, next == 64 ? 1 : 2));
    blocks->push_back(Residual(next, next, 1));
    width = next;
  }
  head = register_module("head", torch::nn::Linear(width, kClasses));
}

at::Tensor ResNetImpl::forward(const at::Tensor& images) {
  return head(blocks->forward(stem->forward(images)).mean({2, 3}));
}

Example ResNetImpl::example() {
  return {torch::randn({kRows, 3, 32, 32}), torch::randint(0, kClasses, {kRows}, torch::kLong)};
}

GptImpl::GptImpl() {
  words = register_module("words", torch::nn::Embedding(kTokens, kEmbedding));
  places = register_module("places", torch::nn::Embedding(kLength, kEmbedding));
  register_module("blocks", blocks);
  for (int block = 0; block < kBlocks; ++block) blocks->push_back(Block());
  norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kEmbedding})));
  head = register_module("head", torch::nn::Linear(kEmbedding, kTokens));
}

at::Tensor GptImpl::forward(const at::Tensor& tokens) {
  const at::Tensor x = words(tokens) + places(torch::arange(tokens.size(1)));
  return head(norm(blocks->forward(x))).view({-1, kTokens});
}

Example GptImpl::example() {
  return {torch::randint(0, kTokens, {kSentences, kLength}, torch::kLong),
          torch::randint(0, kTokens, {kSentences * kLength}, torch::kLong)};
}

}  // namespace lockstep::benchmarks
