#include "lockstep/models/encoder.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/modules/container/modulelist.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>

#include "lockstep/core/error.hpp"
#include "models/attention.hpp"
#include "models/encoder_form.hpp"
#include "models/encoder_layers.hpp"
#include "models/modern_bert.hpp"
#include "models/weights_dtype.hpp"

namespace lockstep::models {
namespace {

void check_choice(const char* field, const std::string& value, std::initializer_list<const char*> allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  throw UsageError(
      fmt::format("a ModernBERT's {} is '{}', expected one of {}", field, value, fmt::join(allowed, ", ")));
}

void check_modern(const EncoderConfig& config) {
  const auto& own = config.modern;
  check_choice("classifier_pooling", own.classifier_pooling, kPoolings);
  check_choice("classifier_activation", own.classifier_activation, kActivations);
  for (const auto& type : own.layer_types) check_choice("layer_types", type, kModernLayerTypes);
  if (!(own.global_rope_theta > 0 && own.local_rope_theta > 0)) {
    throw UsageError(
        fmt::format("a ModernBERT's global_rope_theta ({}) and local_rope_theta ({}) must be more than 0",
                    own.global_rope_theta, own.local_rope_theta));
  }
  if (own.local_attention < 1 || own.global_attn_every_n_layers < 1) {
    throw UsageError(fmt::format(
        "a ModernBERT's local_attention ({}) and global_attn_every_n_layers ({}) must be positive",
        own.local_attention, own.global_attn_every_n_layers));
  }
  const auto count = std::ssize(own.layer_types);
  if (count != 0 && count != config.num_hidden_layers) {
    throw UsageError(fmt::format("a ModernBERT's layer_types must be one for each of {} layers; got {}",
                                 config.num_hidden_layers, count));
  }
}

void check_encoder(const EncoderConfig& config) {
  const EncoderForm& form = encoder_form_of(config.model_type);
  if (config.num_attention_heads < 1 || config.hidden_size % config.num_attention_heads != 0) {
    throw UsageError(fmt::format("a {}'s hidden_size ({}) must be a multiple of its num_attention_heads ({})",
                                 form.name, config.hidden_size, config.num_attention_heads));
  }
  if (form.embedding_size == 0 && embedding_width(config) != config.hidden_size)
    throw UsageError(
        fmt::format("a {} has embeddings of its hidden_size: leave embedding_size open", form.name));
  if (form.offsets_positions && !config.pad_token_id)
    throw UsageError(fmt::format("a {} needs a pad_token_id: its positions begin behind it", form.name));
  if (form.is_modern) check_modern(config);
}

/// Options of FSDP call BERT's layers by this name.
class BertLayerImpl final : public EncoderLayerImpl {
 public:
  using EncoderLayerImpl::EncoderLayerImpl;
};
TORCH_MODULE(BertLayer);

}  // namespace

EncoderModelImpl::EncoderModelImpl(const EncoderConfig& config, bool add_pooling_layer)
    : EncoderFor(config, "Model") {
  check_encoder(config);
  const EncoderForm& form = encoder_form_of(config.model_type);
  embeddings_ = register_module("embeddings", std::make_shared<EncoderEmbeddingsImpl>(config));
  const std::int64_t inputs = embedding_width(config), width = config.hidden_size;
  if (inputs != width) project_ = register_module("embeddings_project", Linear(inputs, width));
  layers_ = register_at(*this, form.names.list, torch::nn::ModuleList());
  const bool is_bert = config.model_type == "bert";
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    if (form.is_modern) {
      layers_->push_back(made_in_dtype(ModernBertEncoderLayer(config, /*is_first=*/i == 0)));
    } else if (is_bert) {
      layers_->push_back(made_in_dtype(BertLayer(config)));
    } else {
      layers_->push_back(made_in_dtype(EncoderLayer(config)));
    }
  }
  if (add_pooling_layer && form.has_pooler)
    pooler_ = register_at(*this, "pooler.dense", Linear(width, width));
  if (form.is_modern) {
    final_norm_ = register_module("final_norm", encoder_norm(width, config));
    positions_ = std::make_shared<ModernBertPositions>(config);
    initialize_modern_body(*this, config);
  } else {
    apply([&](torch::nn::Module& module) { initialize(module, config_.initializer_range); });
  }
}

EncoderModelImpl::~EncoderModelImpl() = default;

TextEncoderOutput EncoderModelImpl::forward(const at::Tensor& input_ids, const at::Tensor& attention_mask,
                                            const at::Tensor& token_type_ids,
                                            const at::Tensor& position_ids) {
  constexpr auto kAnyLength = std::numeric_limits<std::int64_t>::max();
  check_tokens(encoder_form_of(config_.model_type).name, input_ids, position_ids,
               positions_ ? kAnyLength : config_.max_position_embeddings - first_position(config_));
  const auto mask =
      full_attention(position_ids, attention_mask, embeddings_->words(),
                     {config_.num_attention_heads, config_.hidden_size / config_.num_attention_heads});
  at::Tensor embedded = embeddings_->forward(input_ids, token_type_ids, position_ids);
  if (positions_) {
    return {.last_hidden_state = through_modern_layers(embedded, position_ids, mask),
            .pooler_output = at::Tensor()};
  }
  if (project_) embedded = project_(embedded);
  Norms states{embedded};
  for (const auto& layer : *layers_) states = layer->as<EncoderLayerImpl>()->forward(states, mask);
  TextEncoderOutput output;
  output.last_hidden_state = states.front();
  if (pooler_) output.pooler_output = at::tanh(pooler_(output.last_hidden_state.select(1, 0)));
  return output;
}

at::Tensor EncoderModelImpl::through_modern_layers(at::Tensor states, const at::Tensor& position_ids,
                                                   const AttentionMask& mask) {
  const at::Tensor positions =
      position_ids.defined() ? position_ids : at::arange(states.size(1), states.options().dtype(at::kLong));
  const auto contexts = positions_->contexts_at(positions, mask, states);
  for (std::size_t i = 0; i < layers_->size(); ++i) {
    states = layers_->ptr<ModernBertEncoderLayerImpl>(i)->forward(
        states, positions_->has_window(i) ? contexts.local : contexts.global);
  }
  return final_norm_(states);
}

at::Tensor EncoderModelImpl::word_embeddings() const { return embeddings_->words(); }

}  // namespace lockstep::models
