#include "lockstep/models/pretrained_model.hpp"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>
#include <torch/nn/functional/loss.h>

#include <nlohmann/json.hpp>

#include "attention.hpp"
#include "config_file.hpp"
#include "core/file_system.hpp"
#include "core/json_text.hpp"
#include "families.hpp"
#include "generation_loop.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/train/model_files.hpp"
#include "model_origin.hpp"

namespace lockstep::models {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// A dtype by its name in Python.
const char* dtype_name(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kDouble:
      return "float64";
    default:
      return "float32";
  }
}

/// The names that the file had from which the model came.
std::vector<NamedTensor> with_old_names(std::vector<NamedTensor> tensors,
                                        const std::vector<PretrainedRename>& renames) {
  for (auto& entry : tensors) {
    for (const auto& [in_file, in_model] : renames) {
      if (entry.name.ends_with(in_model))
        entry.name.replace(entry.name.size() - in_model.size(), in_model.size(), in_file);
    }
  }
  return tensors;
}

/// Python loads the weights in the dtype that the configuration names, if it names one.
void set_dtype(Json& config, const std::vector<NamedTensor>& tensors) {
  for (const char* field : {"torch_dtype", "dtype"}) {
    const auto found = config.find(field);
    if (found == config.end() || !found->is_string()) continue;
    for (const auto& entry : tensors) {
      if (!entry.tensor.is_floating_point()) continue;
      *found = dtype_name(entry.tensor.scalar_type());
      break;
    }
  }
}

/// The model's tokens of generate(), as generation_config.json has them.
Json tokens_of(const ModelConfig& config) {
  const auto json = [](const std::optional<std::int64_t>& token) { return token ? Json(*token) : Json(); };
  return {{"bos_token_id", json(config.bos_token_id)},
          {"eos_token_id", token_ids(config.eos_token_id)},
          {"pad_token_id", json(config.pad_token_id)},
          {"decoder_start_token_id", json(config.decoder_start_token_id)},
          {"forced_bos_token_id", json(config.forced_bos_token_id)},
          {"forced_eos_token_id", json(config.forced_eos_token_id)}};
}

void write_companions(const ModelOrigin& origin, const ModelConfig& config, const fs::path& folder) {
  for (const auto& [name, content] : origin.companions) {
    file_system::make_folders((folder / name).parent_path());
    write_atomically(folder / name, content);
  }
  if (!origin.generation.is_null())
    write_atomically(folder / "generation_config.json",
                     json_text(generation_fields(origin, tokens_of(config)), 2) + "\n");
}

}  // namespace

void save_pretrained(PreTrainedModelImpl& model, const fs::path& folder) {
  const auto tensors = with_old_names(parallel::named_state_of(model), model.renames());
  write_model(folder, tensors);
  const std::string text = model.config_json();
  const auto origin = model.origin();
  if (origin == nullptr) {
    write_atomically(folder / kConfigFileName, text);
    return;
  }
  Json config = Json::parse(text);
  write_companions(*origin, model.model_config(), folder);
  set_dtype(config, tensors);
  write_atomically(folder / kConfigFileName, json_text(config, 2) + "\n");
}

void load_weights(PreTrainedModelImpl& model, const fs::path& folder, const PretrainedNames& names,
                  PretrainedReport* report) {
  auto found = load_pretrained(folder, parallel::named_state_of(model), names);
  model.set_renames(found.renames);
  if (report) *report = std::move(found);
}

at::Tensor shift_right(const at::Tensor& labels, std::int64_t first, std::int64_t padding) {
  const at::Tensor start = at::full({labels.size(0), 1}, first, labels.options());
  const at::Tensor shifted = at::cat({start, labels.narrow(1, 0, labels.size(1) - 1)}, 1);
  return shifted.masked_fill(shifted == -100, padding);
}

at::Tensor causal_lm_loss(const at::Tensor& logits, const at::Tensor& labels) {
  const std::int64_t last = logits.size(1) - 1;
  return sequence_loss(logits.narrow(1, 0, last), labels.narrow(1, 1, last));
}

at::Tensor sequence_loss(const at::Tensor& logits, const at::Tensor& labels) {
  return torch::nn::functional::cross_entropy(logits.reshape({-1, logits.size(-1)}), labels.reshape({-1}));
}

namespace {

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
  const Json fields = origin != nullptr ? generation_fields(*origin, tokens_of(facts)) : Json::object();
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
