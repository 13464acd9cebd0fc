#include "lockstep/models/opt.hpp"

#include <fmt/core.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>

#include "lockstep/core/error.hpp"
#include "lockstep/models/embedding.hpp"
#include "lockstep/models/linear.hpp"
#include "models/attention.hpp"
#include "models/bart_layers.hpp"
#include "models/load_weights.hpp"
#include "models/weights_dtype.hpp"

namespace lockstep::models {
namespace {

using torch::nn::LayerNorm;

/// Offset of positions in the files' embedding tables.
constexpr std::int64_t kFirstOptPlace = 2;

void check_config(const OptConfig& config) {
  if (config.num_attention_heads < 1 || config.hidden_size % config.num_attention_heads != 0) {
    throw UsageError(
        fmt::format("an OPT's hidden_size ({}) must be a multiple of its num_attention_heads ({})",
                    config.hidden_size, config.num_attention_heads));
  }
}

BartLayerOptions layer_options(const OptConfig& config) {
  return {.width = config.hidden_size,
          .heads = config.num_attention_heads,
          .inner = config.ffn_dim,
          .activation = config.activation_function,
          .dropout = config.dropout,
          .attention_dropout = config.attention_dropout,
          .norm_first = config.do_layer_norm_before,
          .bias = config.enable_bias,
          .affine = config.layer_norm_elementwise_affine,
          .has_source = false};
}

}  // namespace

/// The layers, with the embeddings.
class OptDecoderImpl : public torch::nn::Module {
 public:
  explicit OptDecoderImpl(const OptConfig& config) : layerdrop_(config.layerdrop) {
    const std::int64_t width = config.hidden_size;
    const std::int64_t narrow = config.word_embed_proj_dim > 0 ? config.word_embed_proj_dim : width;
    const auto words = torch::nn::EmbeddingOptions(config.vocab_size, narrow);
    tokens_ = register_module("embed_tokens",
                              Embedding(torch::nn::EmbeddingOptions(words).padding_idx(config.pad_token_id)));
    positions_ =
        register_module("embed_positions", Embedding(config.max_position_embeddings + kFirstOptPlace, width));
    if (narrow != width) {
      out_ = register_module("project_out", Linear(torch::nn::LinearOptions(width, narrow).bias(false)));
      in_ = register_module("project_in", Linear(torch::nn::LinearOptions(narrow, width).bias(false)));
    }
    if (config.do_layer_norm_before && !config.remove_final_layer_norm) {
      const auto norm =
          torch::nn::LayerNormOptions({width}).elementwise_affine(config.layer_norm_elementwise_affine);
      norm_ = register_module("final_layer_norm", LayerNorm(norm));
    }
    layers_ = register_module("layers", torch::nn::ModuleList());
    for (std::int64_t i = 0; i < config.num_hidden_layers; ++i)
      layers_->push_back(made_in_dtype(BartDecoderLayer(layer_options(config))));
  }

  /// Returns the states; with a cache, those of the last token alone, [rows, width].
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& positions, const BartContext& context) {
    at::Tensor states = tokens_(ids);
    if (in_) states = in_(states);
    states = states + positions_(positions + kFirstOptPlace);
    std::size_t number = 0;
    for (const auto& layer : *layers_) {
      const bool skipped = draw_skip(*this, layerdrop_);
      states = unless_skipped(layer->as<BartDecoderLayerImpl>()->forward(states, context, number++), states,
                              skipped);
    }
    if (context.cache) states = states.select(1, -1);
    if (norm_) states = norm_(states);
    return out_ ? out_(states) : states;
  }

  const at::Tensor& words() const { return tokens_->weight; }

 private:
  double layerdrop_;
  Embedding tokens_{nullptr}, positions_{nullptr};
  Linear in_{nullptr}, out_{nullptr};
  LayerNorm norm_{nullptr};
  torch::nn::ModuleList layers_{nullptr};
};
TORCH_MODULE(OptDecoder);

class OptBodyImpl : public torch::nn::Module {
 public:
  explicit OptBodyImpl(const OptConfig& config) { decoder = register_module("decoder", OptDecoder(config)); }
  OptDecoder decoder{nullptr};
};

OptForCausalLMImpl::OptForCausalLMImpl(const OptConfig& config) : FamilyModel(config) {
  check_config(config);
  model_ = register_module("model", std::make_shared<OptBodyImpl>(config));
  apply([&](torch::nn::Module& module) { initialize(module, config_.init_std); });
}

OptForCausalLMImpl::~OptForCausalLMImpl() = default;

TokenHead OptForCausalLMImpl::head() const { return {.weight = model_->decoder->words()}; }

at::Tensor OptForCausalLMImpl::states(const at::Tensor& input_ids, const at::Tensor& attention_mask,
                                      const at::Tensor& position_ids) {
  check_tokens("OPT", input_ids, position_ids, config_.max_position_embeddings);
  const bool has_positions = position_ids.defined();
  const auto mask =
      causal_attention(position_ids, attention_mask, model_->decoder->words(),
                       {config_.num_attention_heads, config_.hidden_size / config_.num_attention_heads});
  return model_->decoder(input_ids,
                         has_positions ? position_ids : positions_after(0, input_ids, attention_mask, -1),
                         BartContext{.mask = mask});
}

at::Tensor OptForCausalLMImpl::forward_with_cache(const at::Tensor& input_ids, KeyValueCache& cache,
                                                  const at::Tensor& attention_mask) {
  const std::int64_t begin = cache.length();
  check_next_tokens("OPT", begin, input_ids, attention_mask, config_.max_position_embeddings);
  return logits_of(head(), model_->decoder(input_ids, positions_after(begin, input_ids, attention_mask, -1),
                                           BartContext{.mask = causal_mask_after(begin, attention_mask),
                                                       .cache = &cache}));
}

OptForCausalLM load_opt(const std::filesystem::path& folder, PretrainedReport* report) {
  OptForCausalLM model(OptConfig::from_file(folder));
  const PretrainedNames names = {
      .base_prefix = "model.",
      .other_heads = {"lm_head.", "score.", "qa_outputs."},
      .sizes = {{"decoder.embed_tokens.", "weight", {"vocab_size", "word_embed_proj_dim"}},
                {"decoder.embed_positions.", "weight", {"max_position_embeddings", "hidden_size"}},
                {"decoder.", ".fc1.weight", {"ffn_dim", "hidden_size"}},
                {"decoder.", ".fc1.bias", {"ffn_dim"}},
                {"decoder.", ".fc2.weight", {"hidden_size", "ffn_dim"}},
                {"decoder.project_in.", "weight", {"hidden_size", "word_embed_proj_dim"}},
                {"decoder.project_out.", "weight", {"word_embed_proj_dim", "hidden_size"}},
                {"", "", {"hidden_size", "hidden_size"}}},
      .layers = {{"decoder.layers.", "num_hidden_layers"}}};
  load_weights(*model, folder, names, report);
  return model;
}

}  // namespace lockstep::models
