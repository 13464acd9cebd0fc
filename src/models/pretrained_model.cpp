#include "lockstep/models/pretrained_model.hpp"

#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>

#include <nlohmann/json.hpp>

#include "core/file_system.hpp"
#include "core/json_text.hpp"
#include "lockstep/core/atomic_file.hpp"
#include "lockstep/models/lora.hpp"
#include "lockstep/train/model_files.hpp"
#include "models/model_origin.hpp"
#include "models/nf4_load.hpp"

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

/// Whether layers are quantized may have changed since the file was read.
void set_quantization(Json& config, PreTrainedModelImpl& model) {
  const auto layers = nf4_layers(model);
  if (layers.empty()) {
    config.erase("quantization_config");
  } else if (!config.contains("quantization_config")) {
    config["quantization_config"] = nf4_config_fields(nf4_state(*layers.front().layer)->options());
  }
}

void write_companions(const ModelOrigin& origin, const ModelConfig& config, const fs::path& folder) {
  for (const auto& [name, content] : origin.companions) {
    file_system::make_folders((folder / name).parent_path());
    write_atomically(folder / name, content);
  }
  if (!origin.generation.is_null())
    write_atomically(folder / "generation_config.json",
                     json_text(generation_fields(origin, config), 2) + "\n");
}

}  // namespace

void save_pretrained(PreTrainedModelImpl& model, const fs::path& folder) {
  if (lora_of(model) != nullptr) return save_adapter(model, folder);
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
  set_quantization(config, model);
  write_atomically(folder / kConfigFileName, json_text(config, 2) + "\n");
}

at::Tensor CausalLMImpl::forward(const at::Tensor& input_ids, const at::Tensor& attention_mask,
                                 const at::Tensor& position_ids) {
  return logits_of(head(), states(input_ids, attention_mask, position_ids));
}

TokenLosses CausalLMImpl::token_losses(const at::Tensor& labels, const TokenLossOptions& options,
                                       const at::Tensor& input_ids, const at::Tensor& attention_mask,
                                       const at::Tensor& position_ids) {
  return models::token_losses(head(), states(input_ids, attention_mask, position_ids),
                              labels.defined() ? next_labels(labels) : labels, options);
}

at::Tensor MaskedLMImpl::forward(const at::Tensor& input_ids, const at::Tensor& attention_mask,
                                 const at::Tensor& token_type_ids, const at::Tensor& position_ids) {
  return logits_of(head(), states(input_ids, attention_mask, token_type_ids, position_ids));
}

TokenLosses MaskedLMImpl::token_losses(const at::Tensor& labels, const TokenLossOptions& options,
                                       const at::Tensor& input_ids, const at::Tensor& attention_mask,
                                       const at::Tensor& token_type_ids, const at::Tensor& position_ids) {
  return models::token_losses(head(), states(input_ids, attention_mask, token_type_ids, position_ids), labels,
                              options);
}

at::Tensor Seq2SeqLMImpl::forward(const at::Tensor& input_ids, const at::Tensor& attention_mask,
                                  const at::Tensor& decoder_input_ids) {
  return logits_of(head(), states(input_ids, attention_mask, decoder_input_ids));
}

TokenLosses Seq2SeqLMImpl::token_losses(const at::Tensor& labels, const TokenLossOptions& options,
                                        const at::Tensor& input_ids, const at::Tensor& attention_mask,
                                        const at::Tensor& decoder_input_ids) {
  if (!labels.defined() && !decoder_input_ids.defined())
    throw UsageError("token_losses: a model of pairs of texts needs labels or decoder_input_ids");
  const at::Tensor inputs = decoder_input_ids.defined() ? decoder_input_ids : decoder_inputs(labels);
  return models::token_losses(head(), states(input_ids, attention_mask, inputs), labels, options);
}

at::Tensor shift_right(const at::Tensor& labels, std::int64_t first, std::int64_t padding) {
  const at::Tensor start = at::full({labels.size(0), 1}, first, labels.options());
  const at::Tensor shifted = at::cat({start, labels.narrow(1, 0, labels.size(1) - 1)}, 1);
  return shifted.masked_fill(shifted == -100, padding);
}

at::Tensor causal_lm_loss(const at::Tensor& logits, const at::Tensor& labels) {
  return sequence_loss(logits, next_labels(labels));
}

at::Tensor sequence_loss(const at::Tensor& logits, const at::Tensor& labels) {
  return torch::nn::functional::cross_entropy(logits.reshape({-1, logits.size(-1)}), labels.reshape({-1}));
}

}  // namespace lockstep::models
