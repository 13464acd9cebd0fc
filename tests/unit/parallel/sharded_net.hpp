#pragma once

#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>
#include <torch/utils.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/models/decoder.hpp"
#include "lockstep/models/gpt2.hpp"
#include "lockstep/optim/adam.hpp"
#include "lockstep/parallel/fully_shard.hpp"
#include "support/ranks.hpp"

// A module with units, and how tests of fully_shard() train it.
namespace lockstep::testing {

using Tensors = std::vector<at::Tensor>;

class BlockImpl : public torch::nn::Module, public Unit {
 public:
  BlockImpl()
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})))),
        in(register_module("in", torch::nn::Linear(6, 11))),
        out(register_module("out", torch::nn::Linear(11, 6))) {}
  at::Tensor forward(const at::Tensor& states) { return through(*this, &BlockImpl::body, states); }
  bool fails = false;
  /// Returns its input: LayerDrop.
  bool is_dropped = false;
  at::ScalarType computes_in = at::kInt;
  /// Called when its own computation begins.
  std::function<void()> begins = [] {};

 private:
  at::Tensor body(const at::Tensor& states) {
    computes_in = in->weight.scalar_type();
    begins();
    if (is_dropped) return states;
    const at::Tensor hidden = torch::tanh(in(norm(states)));
    if (fails) throw Error("the block fails");
    return states + out(hidden);
  }
  torch::nn::LayerNorm norm;
  torch::nn::Linear in, out;
};
TORCH_MODULE(Block);

/// An embedding and a head in the root, and three blocks; the second is used twice.
class NetImpl : public torch::nn::Module {
 public:
  NetImpl() {
    first = register_module("first", torch::nn::Linear(5, 6));
    for (int i = 0; i < 3; ++i) blocks->push_back(Block());
    register_module("blocks", blocks);
    last = register_module("last", torch::nn::Linear(6, 3));
  }
  at::Tensor forward(const at::Tensor& input) {
    at::Tensor states = first(input);
    for (const std::size_t number : order) states = block(number).forward(states);
    return last(states);
  }
  BlockImpl& block(std::size_t number) { return *blocks->at<BlockImpl>(number).as<BlockImpl>(); }
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::ModuleList blocks;
  std::vector<std::size_t> order{0, 1, 1, 2};
};
TORCH_MODULE(Net);

/// Its blocks come in an order that changes, so that what is gathered ahead is often the wrong one.
struct WanderingNetImpl : NetImpl {
  at::Tensor forward(const at::Tensor& input, int step) {
    static const std::vector<std::vector<std::size_t>> orders{
        {0, 1, 2}, {0, 1, 2}, {0, 2, 1}, {2, 0}, {0, 1, 0, 2}};
    order = orders.at(static_cast<std::size_t>(step) % orders.size());
    return NetImpl::forward(input);
  }
};
TORCH_MODULE(WanderingNet);

/// New modules draw from the process's generator, which the ranks' threads share.
inline std::mutex generator_mutex;

template <class Make>
auto seeded(const Make& make) {
  const std::lock_guard lock(generator_mutex);
  torch::manual_seed(3);
  return make();
}

inline at::Tensor batch_of(int rank, int step) {
  return torch::arange(20, at::kFloat).view({4, 5}).mul(0.37).add(rank * 1.3 + step).sin();
}

inline Tensors whole_parameters(FullyShardedDataParallelBase& model, torch::nn::Module& module) {
  const auto whole = model.full_parameters();
  Tensors values;
  for (const auto& parameter : module.parameters()) values.push_back(parameter.detach().clone());
  return values;
}

inline void expect_equal(const Tensors& one, const Tensors& other, const std::string& what) {
  ASSERT_EQ(one.size(), other.size());
  for (std::size_t i = 0; i < one.size(); ++i)
    EXPECT_TRUE(torch::equal(one[i], other[i])) << what << ' ' << i;
}

template <class Wrapped, class Loss>
std::vector<double> losses_of(Wrapped& wrapped, const std::vector<at::Tensor>& parameters, const Loss& loss,
                              int accumulation) {
  optim::AdamW optimizer(parameters, {.lr = 0.01});
  std::vector<double> losses;
  for (int step = 0; step < 10; ++step) {
    for (int micro = 0; micro < accumulation; ++micro) {
      using Quiet = decltype(wrapped.no_sync());
      std::optional<std::unique_ptr<Quiet>> quiet;
      if (micro + 1 < accumulation) quiet.emplace(new Quiet(wrapped.no_sync()));
      const at::Tensor value = loss(wrapped, step * accumulation + micro);
      losses.push_back(value.template item<double>());
      value.backward();
    }
    optimizer.step();
    wrapped.zero_grad();
  }
  return losses;
}

inline const auto net_loss = [](auto& model, int rank, int step) {
  return model(batch_of(rank, step)).square().mean();
};

inline models::Gpt2Config gpt2_config(std::int64_t layers, std::int64_t width) {
  return {.vocab_size = 37,
          .n_positions = 16,
          .n_embd = width,
          .n_layer = layers,
          .n_head = 2,
          .resid_pdrop = 0,
          .embd_pdrop = 0,
          .attn_pdrop = 0};
}

/// A tiny decoder of a family, with windows shorter than its texts where the family has windows.
inline models::DecoderConfig decoder_config(const std::string& model_type) {
  auto config = models::DecoderConfig::of(model_type);
  config.vocab_size = 37;
  config.hidden_size = 12;
  config.intermediate_size = 20;
  config.num_attention_heads = 2;
  config.num_key_value_heads = 1;
  config.head_dim = 6;
  config.layers.resize(2);
  for (auto& layer : config.layers) layer.window = layer.window > 0 ? 3 : 0;
  config.padding_idx = 5;
  return config;
}

}  // namespace lockstep::testing
