#include "lockstep/models/gpt2.hpp"

#include <fmt/core.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>

#include <cmath>

#include "kernels/embedding.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/embedding.hpp"
#include "lockstep/models/linear.hpp"
#include "lockstep/parallel/unit.hpp"
#include "models/attention.hpp"
#include "models/load_weights.hpp"
#include "models/residual.hpp"
#include "models/split_columns.hpp"
#include "models/weights_dtype.hpp"

namespace lockstep::models {
namespace {

using torch::nn::Dropout;
using torch::nn::LayerNorm;

LayerNorm layer_norm(const Gpt2Config& config) {
  return LayerNorm(torch::nn::LayerNormOptions({config.n_embd}).eps(config.layer_norm_epsilon));
}

/// Mask and cache of one forward pass.
struct Context {
  AttentionMask mask;
  KeyValueCache* cache = nullptr;
};

class Gpt2AttentionImpl : public torch::nn::Module {
 public:
  Gpt2AttentionImpl(const Gpt2Config& config, double spread)
      : heads_(config.n_head), drop_(config.attn_pdrop) {
    all_ = register_module("c_attn", Conv1D(config.n_embd, 3 * config.n_embd, config.initializer_range));
    output_ = register_module("c_proj", Conv1D(config.n_embd, config.n_embd, spread));
    dropout_ = register_module("resid_dropout", Dropout(config.resid_pdrop));
  }

  at::Tensor forward(const at::Tensor& states, const Context& context, std::size_t layer) {
    const std::int64_t width = states.size(-1);
    const auto parts = split_columns(all_(states), {width, width, width});
    at::Tensor key = split_heads(parts[1], heads_);
    at::Tensor value = split_heads(parts[2], heads_);
    if (context.cache) context.cache->append(layer, key, value);
    const double drop = is_training() ? drop_ : 0.0;
    return dropout_(output_(attend(split_heads(parts[0], heads_), key, value, context.mask, drop)));
  }

 private:
  std::int64_t heads_;
  double drop_;
  Conv1D all_{nullptr}, output_{nullptr};
  Dropout dropout_{nullptr};
};
TORCH_MODULE(Gpt2Attention);

class Gpt2MlpImpl : public torch::nn::Module {
 public:
  Gpt2MlpImpl(const Gpt2Config& config, double spread) : activation_(config.activation_function) {
    const std::int64_t inner = config.n_inner > 0 ? config.n_inner : 4 * config.n_embd;
    in_ = register_module("c_fc", Conv1D(config.n_embd, inner, config.initializer_range));
    out_ = register_module("c_proj", Conv1D(inner, config.n_embd, spread));
    dropout_ = register_module("dropout", Dropout(config.resid_pdrop));
  }
  at::Tensor forward(const at::Tensor& states) { return dropout_(out_(in_->activated(states, activation_))); }

 private:
  std::string activation_;
  Conv1D in_{nullptr}, out_{nullptr};
  Dropout dropout_{nullptr};
};
TORCH_MODULE(Gpt2Mlp);

class Gpt2BlockImpl : public torch::nn::Module, public Unit {
 public:
  Gpt2BlockImpl(const Gpt2Config& config, double spread) {
    norm1_ = register_module("ln_1", layer_norm(config));
    attention_ = register_module("attn", Gpt2Attention(config, spread));
    norm2_ = register_module("ln_2", layer_norm(config));
    mlp_ = register_module("mlp", Gpt2Mlp(config, spread));
  }

  Residual forward(const Residual& states, const Context& context, std::size_t layer) {
    // A second run would append to the cache again.
    if (context.cache) return through_once(*this, &Gpt2BlockImpl::body, states, context, layer);
    return through(*this, &Gpt2BlockImpl::body, input_of(*this, states), context, layer);
  }

 private:
  Residual body(const Residual& residual, const Context& context, std::size_t layer) {
    const auto [states, normed] = normalize(residual, norm1_);
    const auto attended = normalize(add_branch(states, attention_(normed, context, layer)), norm2_);
    return add_branch(attended.states, mlp_(attended.normed));
  }

  LayerNorm norm1_{nullptr}, norm2_{nullptr};
  Gpt2Attention attention_{nullptr};
  Gpt2Mlp mlp_{nullptr};
};
TORCH_MODULE(Gpt2Block);

void check_config(const Gpt2Config& config) {
  if (config.n_head < 1 || config.n_embd % config.n_head != 0) {
    throw UsageError(fmt::format("a GPT-2's n_embd ({}) must be a multiple of its n_head ({})", config.n_embd,
                                 config.n_head));
  }
}

}  // namespace

class Gpt2BodyImpl : public torch::nn::Module {
 public:
  explicit Gpt2BodyImpl(const Gpt2Config& config) {
    tokens_ = register_module("wte", Embedding(config.vocab_size, config.n_embd));
    positions_ = register_module("wpe", Embedding(config.n_positions, config.n_embd));
    dropout_ = register_module("drop", Dropout(config.embd_pdrop));
    torch::nn::init::normal_(tokens_->weight, 0, config.initializer_range);
    torch::nn::init::normal_(positions_->weight, 0, config.initializer_range);
    blocks_ = register_module("h", torch::nn::ModuleList());
    // The last layers of residual branches are initialized with smaller values, by the number of branches.
    const double spread = config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.n_layer));
    for (std::int64_t i = 0; i < config.n_layer; ++i)
      blocks_->push_back(made_in_dtype(Gpt2Block(config, spread)));
    norm_ = register_module("ln_f", layer_norm(config));
  }

  /// Returns the states; with a cache, those of the last token alone, [rows, width]. `places`: undefined if
  /// each row is one text from its begin.
  at::Tensor forward(const at::Tensor& ids, const Context& context, const at::Tensor& places) {
    Residual states{dropout_(embedded(ids, places))};
    std::size_t layer = 0;
    for (const auto& block : *blocks_) {
      states = block->as<Gpt2BlockImpl>()->forward(states, context, layer++);
    }
    if (context.cache) states = {whole_states(states).select(1, -1)};
    return final_norm(states, norm_);
  }

  const at::Tensor& words() const { return tokens_->weight; }

 private:
  at::Tensor embedded(const at::Tensor& ids, const at::Tensor& places) {
    if (places.defined()) return tokens_(ids) + positions_(places);
    const kernels::EmbeddingTables tables{.words = tokens_->weight, .places = positions_->weight};
    const bool is_plain = !tokens_->has_adapter() && !positions_->has_adapter();
    if (is_plain && kernels::takes_embedding({ids}, tables)) return kernels::embed_tokens({ids}, tables);
    return tokens_(ids) + positions_(positions_after(0, ids, {}, 0));
  }

  Embedding tokens_{nullptr}, positions_{nullptr};
  Dropout dropout_{nullptr};
  torch::nn::ModuleList blocks_{nullptr};
  LayerNorm norm_{nullptr};
};

Gpt2LMHeadModelImpl::Gpt2LMHeadModelImpl(const Gpt2Config& config) : FamilyModel(config) {
  check_config(config);
  transformer_ = register_module("transformer", std::make_shared<Gpt2BodyImpl>(config));
}

Gpt2LMHeadModelImpl::~Gpt2LMHeadModelImpl() = default;

TokenHead Gpt2LMHeadModelImpl::head() const { return {.weight = transformer_->words()}; }

at::Tensor Gpt2LMHeadModelImpl::states(const at::Tensor& input_ids, const at::Tensor& attention_mask,
                                       const at::Tensor& position_ids) {
  check_tokens("GPT-2", input_ids, position_ids, config_.n_positions);
  const auto mask = causal_attention(position_ids, attention_mask, transformer_->words(),
                                     {config_.n_head, config_.n_embd / config_.n_head});
  return transformer_->forward(input_ids, {.mask = mask}, position_ids);
}

at::Tensor Gpt2LMHeadModelImpl::forward_with_cache(const at::Tensor& input_ids, KeyValueCache& cache,
                                                   const at::Tensor& attention_mask) {
  const std::int64_t begin = cache.length();
  check_next_tokens("GPT-2", begin, input_ids, attention_mask, config_.n_positions);
  return logits_of(head(), transformer_->forward(
                               input_ids, {.mask = causal_mask_after(begin, attention_mask), .cache = &cache},
                               positions_after(begin, input_ids, attention_mask, 0)));
}

Gpt2LMHeadModel load_gpt2(const std::filesystem::path& folder, PretrainedReport* report) {
  Gpt2LMHeadModel model(Gpt2Config::from_file(folder));
  const PretrainedNames names = {
      .base_prefix = "transformer.",
      .other_heads = {"lm_head.", "score.", "classifier.", "qa_outputs.", "multiple_choice_head."},
      .constants = {".attn.bias", ".attn.masked_bias"},
      .sizes = {{"wte.", "weight", {"vocab_size", "n_embd"}},
                {"wpe.", "weight", {"n_positions", "n_embd"}},
                {"h.", ".mlp.c_fc.weight", {"n_embd", "n_inner"}},
                {"h.", ".mlp.c_fc.bias", {"n_inner"}},
                {"h.", ".mlp.c_proj.weight", {"n_inner", "n_embd"}},
                {"", "", {"n_embd", "n_embd"}}},
      .layers = {{"h.", "n_layer"}}};
  load_weights(*model, folder, names, report);
  return model;
}

}  // namespace lockstep::models
