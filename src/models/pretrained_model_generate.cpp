#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <nlohmann/json.hpp>

#include "lockstep/core/error.hpp"
#include "lockstep/models/pretrained_model.hpp"
#include "models/attention.hpp"
#include "models/generation_loop.hpp"
#include "models/model_origin.hpp"

namespace lockstep::models {
namespace {

using Json = nlohmann::ordered_json;

std::optional<std::int64_t> token_in(const Json& fields, const char* name) {
  const auto found = fields.find(name);
  if (found == fields.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<std::int64_t>();
}

/// What the options leave open comes from the folder that the model came from, with the tokens that its
/// configuration has changed since.
GenerationSettings settings_of(const PreTrainedModelImpl& model, GenerationConfig options) {
  const ModelConfig facts = model.model_config();
  const auto origin = model.origin();
  const Json fields = origin != nullptr ? generation_fields(*origin, facts) : Json::object();
  const std::string file = origin != nullptr ? origin->generation_file : "the model's configuration";
  GenerationConfig own = read_generation(fields, file);
  // As in transformers, config.json does not say how to begin where there is a generation_config.json.
  if (!own.decoder_start_token_id) own.decoder_start_token_id = token_in(fields, "bos_token_id");
  if (!own.decoder_start_token_id) own.decoder_start_token_id = facts.decoder_start_token_id;
  if (!own.decoder_start_token_id) own.decoder_start_token_id = facts.bos_token_id;
  if (own.eos_token_id.empty()) own.eos_token_id = facts.eos_token_id;
  if (!own.pad_token_id) own.pad_token_id = facts.pad_token_id;
  if (!own.forced_bos_token_id) own.forced_bos_token_id = facts.forced_bos_token_id;
  if (!own.forced_eos_token_id) own.forced_eos_token_id = facts.forced_eos_token_id;
  return {std::move(options), own, file};
}

/// A mask of padding in front; undefined if there is no padding.
at::Tensor mask_in_front(const at::Tensor& mask, const at::Tensor& ids) {
  if (!mask.defined()) return {};
  if (mask.sizes() != ids.sizes() || ids.dim() != 2) {
    throw UsageError("generate takes an attention_mask of the shape of input_ids, " + c10::str(ids.sizes()) +
                     "; got " + c10::str(mask.sizes()));
  }
  if (mask.all().item<bool>()) return {};
  if (!mask.select(1, -1).all().item<bool>()) {
    throw UsageError(
        "generate continues texts at their end: expected padding in front of them, but attention_mask has 0 "
        "at the end of a row");
  }
  return mask;
}

}  // namespace

at::Tensor generate(CausalLMImpl& model, const at::Tensor& input_ids, const at::Tensor& attention_mask,
                    GenerationConfig config) {
  const at::NoGradGuard no_grad;
  at::Tensor mask = mask_in_front(attention_mask, input_ids);
  KeyValueCache cache;
  const TokenModel steps = {.next =
                                [&](const at::Tensor& tokens) {
                                  if (mask.defined() && cache.length() > 0)
                                    mask = at::cat({mask, at::ones_like(tokens, mask.options())}, 1);
                                  return model.forward_with_cache(tokens, cache, mask);
                                },
                            .reorder =
                                [&](const at::Tensor& rows) {
                                  cache.reorder(rows);
                                  if (mask.defined()) mask = mask.index_select(0, rows);
                                }};
  const GenerationInput input{
      .tokens = input_ids, .mask = mask, .longest = model.model_config().max_position_embeddings};
  return generate_texts(steps, input, settings_of(model, std::move(config)));
}

at::Tensor generate(Seq2SeqLMImpl& model, const at::Tensor& input_ids, const at::Tensor& attention_mask,
                    GenerationConfig config) {
  const at::NoGradGuard no_grad;
  const auto settings = settings_of(model, std::move(config));
  const auto first = settings.config().decoder_start_token_id;
  if (!first) {
    throw UsageError(
        "generate needs the first token of a decoder's input, but the model's configuration has "
        "neither decoder_start_token_id nor bos_token_id");
  }
  const TokenModel steps = model.decoder_of(input_ids, attention_mask);
  const GenerationInput input{.tokens = at::full({input_ids.size(0), 1}, *first, input_ids.options()),
                              .sources = rows_without_padding(input_ids, attention_mask),
                              .longest = model.model_config().max_position_embeddings};
  return generate_texts(steps, input, settings);
}

}  // namespace lockstep::models
