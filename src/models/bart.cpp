#include "lockstep/models/bart.hpp"

#include <fmt/core.h>

#include <memory>

#include "lockstep/core/error.hpp"
#include "models/attention.hpp"
#include "models/bart_form.hpp"
#include "models/bart_sides.hpp"
#include "models/load_weights.hpp"

namespace lockstep::models {
namespace {

void check_config(const BartConfig& config) {
  const std::int64_t heads[] = {config.encoder_attention_heads, config.decoder_attention_heads};
  for (const std::int64_t count : heads) {
    if (count < 1 || config.d_model % count != 0) {
      throw UsageError(fmt::format("a BART's d_model ({}) must be a multiple of its attention heads ({})",
                                   config.d_model, count));
    }
  }
}

/// M2M100 computes the positions of texts of any length.
bool has_limit(const BartConfig& config) {
  return form_of(config.model_type).positions != BartForm::sines_without_padding;
}

void check_length(const at::Tensor& ids, const BartConfig& config, const char* what) {
  const bool fits = !has_limit(config) || (ids.dim() == 2 && ids.size(1) <= config.max_position_embeddings);
  if (ids.dim() == 2 && fits) return;
  throw UsageError(fmt::format("{} takes {} [rows, tokens] of at most {} tokens; got {}",
                               form_of(config.model_type).name, what, config.max_position_embeddings,
                               c10::str(ids.sizes())));
}

AttentionMask causal(const at::Tensor& ids) { return {.causal = ids.size(1) > 1}; }

}  // namespace

BartForConditionalGenerationImpl::BartForConditionalGenerationImpl(const BartConfig& config)
    : FamilyModel(config) {
  check_config(config);
  model_ = register_module("model", std::make_shared<BartBodyImpl>(config));
  const auto words = config.share_encoder_decoder_embeddings ? config.vocab_size : config.decoder_vocab_size;
  if (form_of(config.model_type).has_logits_bias)
    final_logits_bias_ = register_buffer("final_logits_bias", torch::zeros({1, words}));
  apply([&](torch::nn::Module& module) { initialize(module, config_.init_std); });
}

BartForConditionalGenerationImpl::~BartForConditionalGenerationImpl() = default;

TokenHead BartForConditionalGenerationImpl::head() const {
  return {.weight = model_->decoder->embedding(), .bias = final_logits_bias_};
}

at::Tensor BartForConditionalGenerationImpl::states(const at::Tensor& input_ids,
                                                    const at::Tensor& attention_mask,
                                                    const at::Tensor& decoder_input_ids) {
  check_length(input_ids, config_, "input_ids");
  check_length(decoder_input_ids, config_, "decoder_input_ids");
  const AttentionMask mask{.mask = padding_mask(attention_mask)};
  const KeyValueCache source = model_->decoder->source_keys(model_->encoder(input_ids, mask));
  return model_->decoder(
      decoder_input_ids,
      BartContext{.mask = causal(decoder_input_ids), .source = &source, .source_mask = mask});
}

at::Tensor BartForConditionalGenerationImpl::decoder_inputs(const at::Tensor& labels) const {
  if (!form_of(config_.model_type).starts_with_last) {
    const auto start = config_.decoder_start_token_id ? config_.decoder_start_token_id : config_.bos_token_id;
    if (start) return shift_right(labels, *start, config_.pad_token_id);
    throw UsageError(
        "the model's configuration has no decoder_start_token_id, with which a decoder's input begins");
  }
  const at::Tensor texts = labels.masked_fill(labels == -100, config_.pad_token_id);
  const at::Tensor last = texts.ne(config_.pad_token_id).sum(1, /*keepdim=*/true) - 1;
  return at::cat({texts.gather(1, last.clamp_min(0)), texts.narrow(1, 0, labels.size(1) - 1)}, 1);
}

void BartForConditionalGenerationImpl::set_first_tokens(std::optional<std::int64_t> decoder_start_token_id,
                                                        std::optional<std::int64_t> forced_bos_token_id) {
  config_.decoder_start_token_id = decoder_start_token_id;
  config_.forced_bos_token_id = forced_bos_token_id;
}

TokenModel BartForConditionalGenerationImpl::decoder_of(const at::Tensor& input_ids,
                                                        const at::Tensor& attention_mask) {
  check_length(input_ids, config_, "input_ids");
  struct State {
    AttentionMask mask;
    KeyValueCache source, cache;
  };
  auto state = std::make_shared<State>();
  state->mask.mask = padding_mask(attention_mask);
  state->source = model_->decoder->source_keys(model_->encoder(input_ids, state->mask));
  return {.next =
              [this, state](const at::Tensor& tokens) {
                const auto length = state->cache.length() + tokens.size(1);
                if (has_limit(config_) && length > config_.max_position_embeddings) {
                  throw UsageError(fmt::format("this {} generates at most {} tokens; these would be {}",
                                               form_of(config_.model_type).name,
                                               config_.max_position_embeddings, length));
                }
                const BartContext context{.mask = causal(tokens),
                                          .source = &state->source,
                                          .source_mask = state->mask,
                                          .cache = &state->cache};
                return logits_of(head(), model_->decoder(tokens, context)).select(1, -1);
              },
          .reorder =
              [state](const at::Tensor& rows) {
                state->cache.reorder(rows);
                state->source.reorder(rows);
                if (state->mask.mask.defined()) state->mask.mask = state->mask.mask.index_select(0, rows);
              }};
}

BartForConditionalGeneration load_bart(const std::filesystem::path& folder, PretrainedReport* report) {
  BartForConditionalGeneration model(BartConfig::from_file(folder));
  const char* target_words =
      model->config().share_encoder_decoder_embeddings ? "vocab_size" : "decoder_vocab_size";
  const PretrainedNames names = {
      .base_prefix = "model.",
      .new_heads = {"final_logits_bias"},
      .other_heads = {"lm_head.", "classification_head.", "qa_outputs."},
      // Marian's and M2M100's positions are computed.
      .constants = {"encoder.version", "decoder.version", "embed_positions.weights",
                    "embed_positions.weight"},
      .sizes = {{"", "embed_positions.weight", {"max_position_embeddings", "d_model"}},
                {"shared.", "weight", {"vocab_size", "d_model"}},
                {"encoder.", "embed_tokens.weight", {"vocab_size", "d_model"}},
                {"decoder.", "embed_tokens.weight", {target_words, "d_model"}},
                {"final_logits_bias", "", {"", target_words}},
                {"encoder.", ".fc1.weight", {"encoder_ffn_dim", "d_model"}},
                {"encoder.", ".fc1.bias", {"encoder_ffn_dim"}},
                {"encoder.", ".fc2.weight", {"d_model", "encoder_ffn_dim"}},
                {"decoder.", ".fc1.weight", {"decoder_ffn_dim", "d_model"}},
                {"decoder.", ".fc1.bias", {"decoder_ffn_dim"}},
                {"decoder.", ".fc2.weight", {"d_model", "decoder_ffn_dim"}},
                {"", "", {"d_model", "d_model"}}},
      .layers = {{"encoder.layers.", "encoder_layers"}, {"decoder.layers.", "decoder_layers"}}};
  load_weights(*model, folder, names, report);
  return model;
}

}  // namespace lockstep::models
