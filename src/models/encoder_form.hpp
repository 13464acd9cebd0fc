#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/models/encoder.hpp"

namespace lockstep::models {

/// The fields of config.json whose names differ between families.
struct EncoderFields {
  const char* hidden_size = "hidden_size";
  const char* num_hidden_layers = "num_hidden_layers";
  const char* num_attention_heads = "num_attention_heads";
  const char* intermediate_size = "intermediate_size";
  const char* hidden_act = "hidden_act";
  const char* hidden_dropout = "hidden_dropout_prob";
  const char* attention_dropout = "attention_probs_dropout_prob";
  const char* classifier_dropout = "classifier_dropout";
  const char* norm_eps = "layer_norm_eps";
};

/// Where the embeddings, and the parts of a layer are in it, and the list of layers in the model.
struct EncoderLayerNames {
  const char* words = "word_embeddings";
  const char* embedding_norm = "LayerNorm";
  const char* list = "encoder.layer";
  const char* query = "attention.self.query";
  const char* key = "attention.self.key";
  const char* value = "attention.self.value";
  const char* attended = "attention.output.dense";
  const char* attention_norm = "attention.output.LayerNorm";
  const char* inner = "intermediate.dense";
  const char* outer = "output.dense";
  const char* output_norm = "output.LayerNorm";
};

/// The classifier of texts, from the first token or from the pooled output.
struct EncoderClassifierForm {
  bool pools = false;
  /// A layer before the last one, with its activation; null: none.
  const char* dense = nullptr;
  const char* activation = "tanh";
  /// A norm behind that layer; null: none. Then a classifier of tokens has both, too.
  const char* norm = nullptr;
  /// Dropout before that layer, too.
  bool drops_input = true;
  const char* output = "classifier";
};

/// The head for masked words: a layer, its activation (null: that of the feed-forward parts), a norm, and the
/// embedding with a bias.
struct EncoderMaskedForm {
  const char* dense;
  const char* activation = "gelu";
  const char* norm;
  const char* bias;
  /// Where files may have the embedding again.
  const char* decoder;
};

/// What a family has: its defaults in transformers, its fields and its names.
struct EncoderForm {
  const char* model_type;
  /// The name for people, and that of the classes in Python.
  const char* name;
  const char* class_name;
  /// Of the body in a model with a head.
  const char* prefix;
  std::int64_t vocab_size = 30522, hidden_size = 768, layers = 12, heads = 12, intermediate_size = 3072;
  std::int64_t max_positions = 512;
  std::optional<std::int64_t> padding = 0;
  EncoderFields fields = {};
  EncoderLayerNames names = {};
  EncoderClassifierForm classifier = {};
  EncoderMaskedForm masked;
  /// The beginnings of names of all heads, up to the first null.
  std::array<const char*, 6> heads_of_tasks = {};
  bool has_types = true, has_pooler = false;
  /// A ModernBERT: see ModernBertFields.
  bool is_modern = false;
  /// The positions of texts begin behind that of padding.
  bool offsets_positions = false;
  /// "embedding_size", and its default; 0: the family has none.
  std::int64_t embedding_size = 0;
  double dropout = 0.1, norm_eps_default = 1e-12;
  /// Dropout of attention's output.
  bool drops_attended = true;
  /// null in the file is hidden_dropout; otherwise there is always a number, this one by default.
  std::optional<double> classifier_dropout = {};
  /// A classifier of tokens has classifier_dropout as well.
  bool drops_tokens_as_texts = true;
  /// The norms have this epsilon, whatever the file says.
  std::optional<double> norm_eps = {};
};

/// The form of a family. Throws UsageError for an unknown one.
const EncoderForm& encoder_form_of(const std::string& model_type);

/// Row of the table of positions of a text's first token.
std::int64_t first_position(const EncoderConfig& config);

}  // namespace lockstep::models
