#include <fmt/core.h>
#include <torch/nn/functional/loss.h>
#include <nlohmann/json.hpp>

#include "attention.hpp"
#include "bart_layers.hpp"
#include "config_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/bart.hpp"

namespace lockstep::models {

BartConfig BartConfig::from_file(const std::filesystem::path& path) {
  const ConfigFile file(path);
  file.require_type("bart");
  BartConfig config;
  file.number("vocab_size", config.vocab_size);
  file.number("max_position_embeddings", config.max_position_embeddings);
  file.number("d_model", config.d_model);
  file.number("encoder_layers", config.encoder_layers);
  file.number("encoder_attention_heads", config.encoder_attention_heads);
  file.number("encoder_ffn_dim", config.encoder_ffn_dim);
  file.number("decoder_layers", config.decoder_layers);
  file.number("decoder_attention_heads", config.decoder_attention_heads);
  file.number("decoder_ffn_dim", config.decoder_ffn_dim);
  file.choice("activation_function", config.activation_function, kActivations);
  file.real("dropout", config.dropout, 1);
  file.real("attention_dropout", config.attention_dropout, 1);
  file.real("activation_dropout", config.activation_dropout, 1);
  file.real("init_std", config.init_std, 10);
  file.flag("scale_embedding", config.scale_embedding);
  file.number("pad_token_id", config.pad_token_id, 0);
  file.number("bos_token_id", config.bos_token_id, 0);
  file.number("decoder_start_token_id", config.decoder_start_token_id, 0);
  file.require("tie_word_embeddings", true);
  file.require_zero("encoder_layerdrop");
  file.require_zero("decoder_layerdrop");
  const auto generation = ConfigFile::of_generation(path);
  generation.tokens("eos_token_id", config.eos_token_id);
  generation.number("forced_bos_token_id", config.forced_bos_token_id, 0);
  generation.number("forced_eos_token_id", config.forced_eos_token_id, 0);
  return config;
}

std::string BartConfig::to_json() const {
  nlohmann::ordered_json json = {{"activation_dropout", activation_dropout},
                                 {"activation_function", activation_function},
                                 {"architectures", {"BartForConditionalGeneration"}},
                                 {"attention_dropout", attention_dropout},
                                 {"bos_token_id", bos_token_id},
                                 {"d_model", d_model},
                                 {"decoder_attention_heads", decoder_attention_heads},
                                 {"decoder_ffn_dim", decoder_ffn_dim},
                                 {"decoder_layers", decoder_layers},
                                 {"decoder_start_token_id", decoder_start_token_id},
                                 {"dropout", dropout},
                                 {"encoder_attention_heads", encoder_attention_heads},
                                 {"encoder_ffn_dim", encoder_ffn_dim},
                                 {"encoder_layers", encoder_layers},
                                 {"eos_token_id", token_ids(eos_token_id)},
                                 {"forced_bos_token_id", nullptr},
                                 {"forced_eos_token_id", nullptr},
                                 {"init_std", init_std},
                                 {"is_encoder_decoder", true},
                                 {"max_position_embeddings", max_position_embeddings},
                                 {"model_type", "bart"},
                                 {"pad_token_id", pad_token_id},
                                 {"scale_embedding", scale_embedding},
                                 {"vocab_size", vocab_size}};
  if (forced_bos_token_id) json["forced_bos_token_id"] = *forced_bos_token_id;
  if (forced_eos_token_id) json["forced_eos_token_id"] = *forced_eos_token_id;
  return json.dump(2) + "\n";
}

}  // namespace lockstep::models

namespace lockstep::models {
namespace {

void check(const BartConfig& config) {
  const std::int64_t heads[] = {config.encoder_attention_heads, config.decoder_attention_heads};
  for (const std::int64_t count : heads) {
    if (count < 1 || config.d_model % count != 0) {
      throw UsageError(fmt::format("a BART's d_model ({}) must be a multiple of its attention heads ({})",
                                   config.d_model, count));
    }
  }
}

void check_length(const at::Tensor& ids, const BartConfig& config, const char* what) {
  if (ids.dim() == 2 && ids.size(1) <= config.max_position_embeddings) return;
  throw UsageError(fmt::format("BART takes {} [rows, tokens] of at most {} tokens; got {}", what,
                               config.max_position_embeddings, c10::str(ids.sizes())));
}

}  // namespace

BartForConditionalGenerationImpl::BartForConditionalGenerationImpl(const BartConfig& config)
    : config_(config) {
  check(config);
  model_ = register_module("model", std::make_shared<BartBodyImpl>(config));
  final_logits_bias_ = register_buffer("final_logits_bias", torch::zeros({1, config.vocab_size}));
  apply([&](torch::nn::Module& module) { initialize(module, config_.init_std); });
}

BartForConditionalGenerationImpl::~BartForConditionalGenerationImpl() = default;

at::Tensor BartForConditionalGenerationImpl::head(const at::Tensor& states) const {
  return at::linear(states, model_->embedding()) + final_logits_bias_;
}

at::Tensor BartForConditionalGenerationImpl::forward(const at::Tensor& input_ids,
                                                     const at::Tensor& attention_mask,
                                                     const at::Tensor& decoder_input_ids) {
  check_length(input_ids, config_, "input_ids");
  check_length(decoder_input_ids, config_, "decoder_input_ids");
  const AttentionMask mask{.mask = padding_mask(attention_mask)};
  const KeyValueCache source = model_->decoder->source_keys(model_->encoder(input_ids, mask));
  return head(model_->decoder(decoder_input_ids, BartContext{.source = &source, .source_mask = mask}));
}

at::Tensor shift_right(const at::Tensor& labels, const BartConfig& config) {
  const at::Tensor start = at::full({labels.size(0), 1}, config.decoder_start_token_id, labels.options());
  const at::Tensor shifted = at::cat({start, labels.narrow(1, 0, labels.size(1) - 1)}, 1);
  return shifted.masked_fill(shifted == -100, config.pad_token_id);
}

at::Tensor sequence_loss(const at::Tensor& logits, const at::Tensor& labels) {
  return torch::nn::functional::cross_entropy(logits.reshape({-1, logits.size(-1)}), labels.reshape({-1}));
}

at::Tensor generate(BartForConditionalGeneration& model, const at::Tensor& input_ids,
                    const at::Tensor& attention_mask, GenerationConfig config) {
  const at::NoGradGuard no_grad;
  const BartConfig& sizes = model->config();
  check_length(input_ids, sizes, "input_ids");
  if (config.eos_token_id.empty()) config.eos_token_id = sizes.eos_token_id;
  if (!config.pad_token_id) config.pad_token_id = sizes.pad_token_id;
  if (!config.forced_bos_token_id) config.forced_bos_token_id = sizes.forced_bos_token_id;
  if (!config.forced_eos_token_id) config.forced_eos_token_id = sizes.forced_eos_token_id;
  AttentionMask mask{.mask = padding_mask(attention_mask)};
  KeyValueCache source = model->body().decoder->source_keys(model->body().encoder(input_ids, mask));
  KeyValueCache cache;
  const TokenModel steps = {
      .next =
          [&](const at::Tensor& tokens) {
            const auto length = cache.length() + tokens.size(1);
            if (length > sizes.max_position_embeddings) {
              throw UsageError(fmt::format("this BART generates at most {} tokens; these would be {}",
                                           sizes.max_position_embeddings, length));
            }
            const BartContext context{.source = &source, .source_mask = mask, .cache = &cache};
            return model->head(model->body().decoder(tokens, context)).select(1, -1);
          },
      .reorder =
          [&](const at::Tensor& rows) {
            cache.reorder(rows);
            source.reorder(rows);
            if (mask.mask.defined()) mask.mask = mask.mask.index_select(0, rows);
          }};
  const at::Tensor start =
      at::full({input_ids.size(0), 1}, sizes.decoder_start_token_id, input_ids.options());
  return generate(steps, start, config);
}

BartForConditionalGeneration load_bart(const std::filesystem::path& folder) {
  BartForConditionalGeneration model(BartConfig::from_file(folder));
  load_pretrained(folder, parallel::named_state_of(*model),
                  {.base_prefix = "model.",
                   .new_heads = {"final_logits_bias"},
                   .other_heads = {"lm_head.", "classification_head.", "qa_outputs."}});
  return model;
}

void save_pretrained(BartForConditionalGeneration& model, const std::filesystem::path& folder) {
  save_pretrained(folder, parallel::named_state_of(*model), model->config().to_json());
}

}  // namespace lockstep::models
