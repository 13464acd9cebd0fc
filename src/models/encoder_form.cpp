#include "models/encoder_form.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "lockstep/core/error.hpp"

namespace lockstep::models {
namespace {

constexpr EncoderMaskedForm kRobertaHead = {.dense = "lm_head.dense",
                                            .norm = "lm_head.layer_norm",
                                            .bias = "lm_head.bias",
                                            .decoder = "lm_head.decoder"};
constexpr EncoderClassifierForm kRobertaClassifier = {.dense = "classifier.dense",
                                                      .output = "classifier.out_proj"};

constexpr EncoderForm kEncoderForms[] = {
    {.model_type = "bert",
     .name = "BERT",
     .class_name = "Bert",
     .prefix = "bert",
     .classifier = {.pools = true},
     .masked = {.dense = "cls.predictions.transform.dense",
                .activation = nullptr,
                .norm = "cls.predictions.transform.LayerNorm",
                .bias = "cls.predictions.bias",
                .decoder = "cls.predictions.decoder"},
     .heads_of_tasks = {"cls.", "classifier.", "qa_outputs."},
     .has_pooler = true},
    {.model_type = "distilbert",
     .name = "DistilBERT",
     .class_name = "DistilBert",
     .prefix = "distilbert",
     .layers = 6,
     .fields = {.hidden_size = "dim",
                .num_hidden_layers = "n_layers",
                .num_attention_heads = "n_heads",
                .intermediate_size = "hidden_dim",
                .hidden_act = "activation",
                .hidden_dropout = "dropout",
                .attention_dropout = "attention_dropout",
                .classifier_dropout = "seq_classif_dropout"},
     .names = {.list = "transformer.layer",
               .query = "attention.q_lin",
               .key = "attention.k_lin",
               .value = "attention.v_lin",
               .attended = "attention.out_lin",
               .attention_norm = "sa_layer_norm",
               .inner = "ffn.lin1",
               .outer = "ffn.lin2",
               .output_norm = "output_layer_norm"},
     .classifier = {.dense = "pre_classifier", .activation = "relu", .drops_input = false},
     .masked = {.dense = "vocab_transform",
                .activation = nullptr,
                .norm = "vocab_layer_norm",
                .bias = "vocab_projector.bias",
                .decoder = "vocab_projector"},
     .heads_of_tasks = {"vocab_transform.", "vocab_layer_norm.", "vocab_projector.", "pre_classifier.",
                        "classifier.", "qa_outputs."},
     .has_types = false,
     .drops_attended = false,
     .classifier_dropout = 0.2,
     .drops_tokens_as_texts = false,
     .norm_eps = 1e-12},
    {.model_type = "electra",
     .name = "ELECTRA",
     .class_name = "Electra",
     .prefix = "electra",
     .hidden_size = 256,
     .heads = 4,
     .intermediate_size = 1024,
     .classifier = {.dense = "classifier.dense", .activation = "gelu", .output = "classifier.out_proj"},
     .masked = {.dense = "generator_predictions.dense",
                .norm = "generator_predictions.LayerNorm",
                .bias = "generator_lm_head.bias",
                .decoder = "generator_lm_head"},
     .heads_of_tasks = {"discriminator_predictions.", "generator_predictions.", "generator_lm_head.",
                        "classifier.", "qa_outputs.", "sequence_summary."},
     .embedding_size = 128},
    {.model_type = "modernbert",
     .name = "ModernBERT",
     .class_name = "ModernBert",
     .prefix = "model",
     .vocab_size = 50368,
     .layers = 22,
     .intermediate_size = 1152,
     .max_positions = 8192,
     .padding = 50283,
     .fields = {.hidden_act = "hidden_activation",
                .hidden_dropout = "embedding_dropout",
                .attention_dropout = "attention_dropout",
                .norm_eps = "norm_eps"},
     .names = {.words = "tok_embeddings",
               .embedding_norm = "norm",
               .list = "layers",
               .attended = "attn.Wo",
               .inner = "mlp.Wi",
               .outer = "mlp.Wo"},
     .classifier = {.dense = "head.dense", .norm = "head.norm", .drops_input = false},
     .masked = {.dense = "head.dense", .norm = "head.norm", .bias = "decoder.bias", .decoder = "decoder"},
     .heads_of_tasks = {"head.", "decoder.", "classifier."},
     .has_types = false,
     .is_modern = true,
     .dropout = 0,
     .norm_eps_default = 1e-5,
     .classifier_dropout = 0.0},
    {.model_type = "roberta",
     .name = "RoBERTa",
     .class_name = "Roberta",
     .prefix = "roberta",
     .vocab_size = 50265,
     .padding = 1,
     .classifier = kRobertaClassifier,
     .masked = kRobertaHead,
     .heads_of_tasks = {"lm_head.", "classifier.", "qa_outputs."},
     .has_pooler = true,
     .offsets_positions = true},
    {.model_type = "xlm-roberta",
     .name = "XLM-RoBERTa",
     .class_name = "XLMRoberta",
     .prefix = "roberta",
     .padding = 1,
     .classifier = kRobertaClassifier,
     .masked = kRobertaHead,
     .heads_of_tasks = {"lm_head.", "classifier.", "qa_outputs."},
     .has_pooler = true,
     .offsets_positions = true},
};

}  // namespace

const EncoderForm& encoder_form_of(const std::string& model_type) {
  const auto* found = std::find_if(std::begin(kEncoderForms), std::end(kEncoderForms),
                                   [&](const EncoderForm& form) { return form.model_type == model_type; });
  if (found != std::end(kEncoderForms)) return *found;
  throw UsageError(fmt::format("there is no encoder of model_type '{}'; expected one of '{}'", model_type,
                               fmt::join(EncoderConfig::model_types(), "', '")));
}

std::int64_t first_position(const EncoderConfig& config) {
  return encoder_form_of(config.model_type).offsets_positions ? config.pad_token_id.value_or(-1) + 1 : 0;
}

std::vector<std::string> EncoderConfig::model_types() {
  std::vector<std::string> types;
  for (const auto& form : kEncoderForms) types.emplace_back(form.model_type);
  return types;
}

}  // namespace lockstep::models
