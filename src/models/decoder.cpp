#include "lockstep/models/decoder.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>

#include "lockstep/core/error.hpp"
#include "lockstep/models/embedding.hpp"
#include "models/attention.hpp"
#include "models/decoder_layers.hpp"
#include "models/rope.hpp"
#include "models/weights_dtype.hpp"

namespace lockstep::models {
namespace {

/// Any: positions are computed.
constexpr std::int64_t kAnyLength = std::numeric_limits<std::int64_t>::max();

void check(const DecoderConfig& config) {
  if (config.num_key_value_heads < 1 || config.num_attention_heads % config.num_key_value_heads != 0) {
    throw UsageError(
        fmt::format("a decoder's num_attention_heads ({}) must be a multiple of its num_key_value_heads ({})",
                    config.num_attention_heads, config.num_key_value_heads));
  }
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const auto& rope = config.layers[i].rope;
    if (rope && *rope >= config.ropes.size())
      throw UsageError(
          fmt::format("layer {} of a decoder has rope {}, of {}", i, *rope, config.ropes.size()));
  }
}

/// `mask` without the tokens that are too far from `window` tokens; the newest of `length` tokens are the
/// `added` queries: all of them, or one.
AttentionMask within_window(const AttentionMask& mask, std::int64_t window, std::int64_t added,
                            std::int64_t length, const at::Device& device) {
  if (window == 0 || length <= window) return mask;
  if (mask.texts) return {.texts = with_window(*mask.texts, window - 1, 0)};
  const auto options = at::TensorOptions(at::kBool).device(device);
  at::Tensor near =
      added == length ? at::ones({length, length}, options).tril().triu(1 - window)
                      : at::arange(length, options.dtype(at::kLong)).ge(length - window).view({1, 1, 1, -1});
  if (mask.mask.defined()) near = near.logical_and(mask.mask);
  return {.mask = near};
}

/// As Python rounds a factor for tensors of this dtype.
double rounded(double value, at::ScalarType dtype) { return at::scalar_tensor(value, dtype).item<double>(); }

}  // namespace

class DecoderBodyImpl : public torch::nn::Module {
 public:
  explicit DecoderBodyImpl(const DecoderConfig& config)
      : layers_(config.layers),
        heads_{config.num_attention_heads, config.head_dim},
        has_caps_(config.attention_softcap > 0),
        scale_(config.embedding_scale),
        rounds_scale_(config.rounds_embedding_scale),
        rope_in_float32_(config.rope_in_float32) {
    auto words = torch::nn::EmbeddingOptions(config.vocab_size, config.hidden_size);
    if (config.padding_idx) words.padding_idx(*config.padding_idx);
    embedding = register_module("embed_tokens", Embedding(words));
    blocks_ = register_module("layers", torch::nn::ModuleList());
    for (std::size_t i = 0; i < layers_.size(); ++i) blocks_->push_back(made_in_dtype(DecoderBlock(config)));
    norm_ = register_module("norm", RmsNorm(config.hidden_size, config));
    for (const auto& rope : config.ropes)
      ropes_.emplace_back(rope, config.head_dim, config.max_position_embeddings);
  }

  /// [rows, tokens, width]; with a cache, those of the last token alone, [rows, width]. `mask` is that of
  /// tokens without a window.
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& positions, const AttentionMask& mask,
                     KeyValueCache* cache = nullptr) {
    at::Tensor states = embedding(ids);
    if (scale_ != 1) states = states * (rounds_scale_ ? rounded(scale_, states.scalar_type()) : scale_);
    std::vector<Rotation> rotations;
    for (auto& rope : ropes_) {
      auto rotation = rope.rotation_at(positions);
      if (!rope_in_float32_) {
        rotation.cos = rotation.cos.to(states.scalar_type());
        rotation.sin = rotation.sin.to(states.scalar_type());
      }
      rotations.push_back(rotation);
    }
    Residual residual{states};
    const std::int64_t length = ids.size(1) + (cache ? cache->length() : 0);
    std::map<std::int64_t, AttentionMask> masks;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const auto [found, is_new] = masks.try_emplace(layers_[i].window);
      if (is_new) found->second = mask_of_layer(mask, layers_[i].window, ids, length);
      const DecoderContext context{.mask = found->second,
                                   .rotation = layers_[i].rope ? rotations[*layers_[i].rope] : Rotation{},
                                   .cache = cache};
      residual = blocks_->ptr<DecoderBlockImpl>(i)->forward(residual, context, i);
    }
    if (cache) residual = {whole_states(residual).select(1, -1)};
    return norm_->of_last_layer(residual);
  }

  /// See Rope::long_from().
  std::int64_t long_from() const {
    std::int64_t from = 0;
    for (const auto& rope : ropes_) from = std::max(from, rope.long_from());
    return from;
  }

  Embedding embedding{nullptr};

 private:
  AttentionMask mask_of_layer(const AttentionMask& mask, std::int64_t window, const at::Tensor& ids,
                              std::int64_t length) const {
    const bool is_plain = mask.causal && !has_caps_ && window > 0 && ids.size(1) == length && length > window;
    const auto rows = is_plain ? whole_rows(ids, embedding->weight, heads_, window) : nullptr;
    if (rows) return {.texts = with_window(*causal_texts(*rows), window - 1, 0)};
    return within_window(mask, window, ids.size(1), length, ids.device());
  }

  std::vector<DecoderLayerConfig> layers_;
  AttentionHeads heads_;
  bool has_caps_;
  double scale_;
  bool rounds_scale_, rope_in_float32_;
  torch::nn::ModuleList blocks_{nullptr};
  RmsNorm norm_{nullptr};
  /// No parts of the module: Module::to() would round them.
  std::vector<Rope> ropes_;
};

DecoderForCausalLMImpl::DecoderForCausalLMImpl(const DecoderConfig& config) : FamilyModel(config) {
  check(config);
  model_ = register_module("model", std::make_shared<DecoderBodyImpl>(config));
  if (!config.tie_word_embeddings) {
    const auto options = torch::nn::LinearOptions(config.hidden_size, config.vocab_size).bias(false);
    head_ = register_module("lm_head", std::make_shared<torch::nn::LinearImpl>(options));
  }
  apply([&](torch::nn::Module& module) { initialize(module, config_.initializer_range); });
}

DecoderForCausalLMImpl::~DecoderForCausalLMImpl() = default;

TokenHead DecoderForCausalLMImpl::head() const {
  return {.weight = head_ ? head_->weight : model_->embedding->weight,
          .divisor = config_.logits_scale,
          .softcap = config_.logits_softcap};
}

at::Tensor DecoderForCausalLMImpl::states(const at::Tensor& input_ids, const at::Tensor& attention_mask,
                                          const at::Tensor& position_ids) {
  check_tokens(config_.model_type.c_str(), input_ids, position_ids, kAnyLength);
  const bool has_positions = position_ids.defined();
  AttentionMask mask = causal_attention(position_ids, attention_mask, model_->embedding->weight,
                                        {config_.num_attention_heads, config_.head_dim});
  // Caps have no fused kernel.
  if (mask.texts && config_.attention_softcap > 0)
    mask = attention_mask.defined() ? causal_mask(attention_mask) : causal_mask_of_texts(position_ids);
  return model_->forward(input_ids, has_positions ? position_ids : positions_after(0, input_ids, {}, 0),
                         mask);
}

at::Tensor DecoderForCausalLMImpl::forward_with_cache(const at::Tensor& input_ids, KeyValueCache& cache,
                                                      const at::Tensor& attention_mask) {
  at::Tensor ids = input_ids;
  std::int64_t begin = cache.length();
  check_next_tokens(config_.model_type.c_str(), begin, ids, attention_mask, kAnyLength);
  if (const std::int64_t long_from = model_->long_from(); long_from > 0) {
    cache.tokens = begin > 0 ? at::cat({cache.tokens, ids}, 1) : ids;
    // From here on all keys have other frequencies: as transformers does for Phi-3, they are computed again.
    const std::int64_t longest = attention_mask.defined()
                                     ? attention_mask.to(at::kLong).sum(1).max().item<std::int64_t>()
                                     : begin + ids.size(1);
    if (begin > 0 && longest == long_from) {
      cache.layers.clear();
      ids = cache.tokens;
      begin = 0;
    }
  }
  return logits_of(head(), model_->forward(ids, positions_after(begin, ids, attention_mask, 0),
                                           causal_mask_after(begin, attention_mask), &cache));
}

}  // namespace lockstep::models
