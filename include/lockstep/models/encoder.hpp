#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/models/linear.hpp"
#include "lockstep/models/pretrained_model.hpp"

namespace lockstep::models {

// One encoder for bert, roberta, xlm-roberta, distilbert, electra and modernbert. The configuration says what
// a family does; the modules have Hugging Face's names. For a folder of any family: AutoModel,
// AutoModelForSequenceClassification, AutoModelForTokenClassification, AutoModelForMaskedLM.

/// What only a ModernBERT has (Warner et al., 2024): rotary positions, layers with a window, norms before
/// their parts, gated feed-forward parts. The fields have the names of its config.json.
struct ModernBertFields {
  /// The width of a window: a token attends to half as many tokens on each side, rounded down, and to itself.
  std::int64_t local_attention = 128;
  /// Every so many layers, from the first, one attends to all tokens; the others have a window.
  std::int64_t global_attn_every_n_layers = 3;
  /// "full_attention" or "sliding_attention" for each layer; empty: by global_attn_every_n_layers.
  std::vector<std::string> layer_types = {};
  /// Of the positions in layers without and with a window: pair i of n elements turns by theta^(-2i / n).
  double global_rope_theta = 160000, local_rope_theta = 10000;
  bool norm_bias = false, attention_bias = false, mlp_bias = false;
  /// Of the layer in front of a classifier or of the head for masked words; of that head's last layer.
  bool classifier_bias = false, decoder_bias = true;
  double mlp_dropout = 0;
  /// What a classifier of texts sees: "cls", the first token, or "mean", of all tokens but padding.
  std::string classifier_pooling = "cls";
  std::string classifier_activation = "gelu";
  /// The normal distribution of new weights is cut off at so many of its standard deviations.
  double initializer_cutoff_factor = 2;
  /// How config.json says layers and positions: "layer_types" and "rope_parameters" of transformers 5, or
  /// "global_attn_every_n_layers", "global_rope_theta" and "local_rope_theta", which versions 4 and 5 read.
  bool has_rope_parameters = false;
};

/// Configuration of an encoder. The fields have the names of BERT's config.json, those of DistilBERT (dim,
/// n_layers, dropout, ...) and ModernBERT (norm_eps, embedding_dropout, ...) too; the defaults are those of
/// bert-base.
struct EncoderConfig {
  std::int64_t vocab_size = 30522;
  std::int64_t hidden_size = 768;
  std::int64_t num_hidden_layers = 12;
  /// Must divide hidden_size.
  std::int64_t num_attention_heads = 12;
  std::int64_t intermediate_size = 3072;
  std::string hidden_act = "gelu";
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  /// Dropout before a classifier; none: hidden_dropout_prob.
  std::optional<double> classifier_dropout = {};
  /// Rows of the table of positions. RoBERTa's first `pad_token_id` + 1 of them are of no token. ModernBERT,
  /// which has no table, takes longer texts as well.
  std::int64_t max_position_embeddings = 512;
  /// 1: token types do not count. DistilBERT and ModernBERT have none.
  std::int64_t type_vocab_size = 2;
  double initializer_range = 0.02;
  double layer_norm_eps = 1e-12;
  /// Its embedding gets no gradient. None, as "pad_token_id": null in a file: all embeddings are trained.
  std::optional<std::int64_t> pad_token_id = 0;
  /// Number of classes of a classifier.
  std::int64_t num_labels = 2;
  /// Names of the classes by number, num_labels of them; empty: LABEL_0, LABEL_1, ... (see class_names.hpp).
  std::vector<std::string> id2label = {};

  /// What the classifier's numbers are: "regression", "single_label_classification" or
  /// "multi_label_classification"; empty: not said. Kept for Python, which chooses the loss by it.
  std::string problem_type = {};
  /// What save_pretrained() keeps of the file; set by from_file().
  std::shared_ptr<const ModelOrigin> origin = {};

  /// The family: it determines the form of config.json, the names of the weights, the heads, and the class of
  /// the weights in Python.
  std::string model_type = "bert";
  /// Width of the embeddings, from which a linear layer makes states if hidden_size is another one (ELECTRA);
  /// 0: hidden_size.
  std::int64_t embedding_size = 0;
  /// The head for masked words shares the embedding's weights.
  bool tie_word_embeddings = true;
  /// Of a ModernBERT alone.
  ModernBertFields modern = {};

  /// The families.
  static std::vector<std::string> model_types();
  /// The defaults of a family's class in transformers. Throws UsageError for an unknown family.
  static EncoderConfig of(const std::string& model_type);
  /// Reads config.json, or the one in a folder; without "model_type", that of a BERT. If it has "id2label",
  /// that defines the number of classes, as in transformers. Throws DataError, which names file and field, if
  /// it is of another model, if a field is out of range, and for features that are not implemented (relative
  /// positions, a decoder).
  static EncoderConfig from_file(const std::filesystem::path& path);
  /// The text of a config.json, with the class names as id2label and label2id. `architecture` is the class of
  /// the weights in Python. Throws UsageError if id2label does not name num_labels classes.
  std::string to_json(const std::string& architecture) const;
  /// The class in Python for a task: "RobertaForMaskedLM" for "ForMaskedLM".
  std::string architecture(const std::string& task) const;
  /// What programs ask of it. Its max_position_embeddings is the longest text.
  ModelConfig model_config() const;
};

struct AttentionMask;

/// The base of the encoder's models for the task `Task`.
template <std::derived_from<PreTrainedModelImpl> Task>
class EncoderFor : public Task {
 public:
  const EncoderConfig& config() const noexcept { return config_; }
  ModelConfig model_config() const override { return config_.model_config(); }
  std::string config_json() const override { return config_.to_json(config_.architecture(task_)); }
  std::shared_ptr<const ModelOrigin> origin() const override { return config_.origin; }

 protected:
  EncoderFor(EncoderConfig config, const char* task) : config_(std::move(config)), task_(task) {}

  EncoderConfig config_;

 private:
  /// The end of the class's name in Python.
  const char* task_;
};

class EncoderEmbeddingsImpl;
class ModernBertPositions;

/// The encoder (Devlin et al., 2019) with the parameter names of Hugging Face's BertModel, RobertaModel and
/// so on. Attention uses scaled_dot_product_attention. Its layers are units: of activation checkpointing,
/// fully_shard() and ShardedInit.
class EncoderModelImpl : public EncoderFor<TextEncoderImpl> {
 public:
  /// New weights, initialized as in Python's class (normal with initializer_range; biases zero). A family
  /// without pooling layer has none. Throws UsageError if the sizes do not fit each other.
  explicit EncoderModelImpl(const EncoderConfig& config = {}, bool add_pooling_layer = true);
  ~EncoderModelImpl() override;

  /// `input_ids` are integers [rows, tokens]. `attention_mask` [rows, tokens] is 1 for tokens and 0 for
  /// padding (undefined: no padding). `token_type_ids` has the same shape (undefined: all 0); models with one
  /// type, or none, do not read it. `position_ids`, integers of the same shape, is each token's position in
  /// its text, from 0 on (undefined: 0, 1, ... in each row; for a RoBERTa, padding by its id does not count).
  /// A RoBERTa adds pad_token_id + 1 itself, which transformers expects of the caller. Windows of a
  /// ModernBERT are of tokens in the row, padding among them. Without an
  /// attention_mask, a position that is not the previous one plus 1 starts another text, and tokens only
  /// attend to their own text: see flatten_collate(). Throws UsageError for other shapes or too many tokens.
  TextEncoderOutput forward(const at::Tensor& input_ids, const at::Tensor& attention_mask = {},
                            const at::Tensor& token_type_ids = {},
                            const at::Tensor& position_ids = {}) override;

  /// [vocab_size, embedding_size]. The model's tensor, no copy.
  at::Tensor word_embeddings() const;

 private:
  at::Tensor through_modern_layers(at::Tensor states, const at::Tensor& position_ids,
                                   const AttentionMask& mask);

  std::shared_ptr<EncoderEmbeddingsImpl> embeddings_;
  /// Null where the family, or the model, has none.
  Linear project_{nullptr}, pooler_{nullptr};
  torch::nn::ModuleList layers_{nullptr};
  /// Of a ModernBERT.
  torch::nn::LayerNorm final_norm_{nullptr};
  std::shared_ptr<ModernBertPositions> positions_;
};
TORCH_MODULE(EncoderModel);

/// With a classifier on the first token, or a ModernBERT's on the mean of all, as Hugging Face's
/// BertForSequenceClassification and so on.
class EncoderForSequenceClassificationImpl : public EncoderFor<SequenceClassifierImpl> {
 public:
  /// Throws UsageError if `config` does not name as many classes as it has.
  explicit EncoderForSequenceClassificationImpl(const EncoderConfig& config = {});

  at::Tensor forward(const at::Tensor& input_ids, const at::Tensor& attention_mask = {},
                     const at::Tensor& token_type_ids = {}) override;
  void set_id2label(std::vector<std::string> names) override;

 private:
  EncoderModel body_{nullptr};
  /// Null if the classifier is one layer.
  Linear dense_{nullptr};
  /// Behind that layer; null where the family has none.
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear classifier_{nullptr};
};
TORCH_MODULE(EncoderForSequenceClassification);

/// With a classifier on each token, as Hugging Face's BertForTokenClassification and so on.
class EncoderForTokenClassificationImpl : public EncoderFor<TokenClassifierImpl> {
 public:
  /// Throws UsageError if `config` does not name as many classes as it has.
  explicit EncoderForTokenClassificationImpl(const EncoderConfig& config = {});

  at::Tensor forward(const at::Tensor& input_ids, const at::Tensor& attention_mask = {},
                     const at::Tensor& token_type_ids = {}, const at::Tensor& position_ids = {}) override;
  void set_id2label(std::vector<std::string> names) override;

 private:
  EncoderModel body_{nullptr};
  /// Before the classifier; null where the family has none.
  Linear dense_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear classifier_{nullptr};
};
TORCH_MODULE(EncoderForTokenClassification);

/// With the head of the family's pretraining on masked words, as Hugging Face's BertForMaskedLM and so on.
/// The head's last layer is the embedding, or, unless tie_word_embeddings, has weights and a bias of its own.
class EncoderForMaskedLMImpl : public EncoderFor<MaskedLMImpl> {
 public:
  explicit EncoderForMaskedLMImpl(const EncoderConfig& config = {});

  at::Tensor states(const at::Tensor& input_ids, const at::Tensor& attention_mask = {},
                    const at::Tensor& token_type_ids = {}, const at::Tensor& position_ids = {}) override;
  TokenHead head() const override;

  /// The bias that Python's class has beside that of a last layer with weights of its own, and does not use:
  /// a buffer, so that files have it. Undefined where there is none.
  const at::Tensor& unused_bias() const noexcept { return unused_bias_; }

 private:
  EncoderModel body_{nullptr};
  std::string activation_;
  Linear dense_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
  /// The weight is undefined if it is the embedding.
  at::Tensor weight_, bias_, unused_bias_;
};
TORCH_MODULE(EncoderForMaskedLM);

/// Reads a folder with config.json and weights, as written by Hugging Face's save_pretrained or by
/// save_pretrained(). The file may have other heads, or be of a model with a head. *Local*. Throws DataError.
/// For any family: AutoModel.
EncoderModel load_encoder(const std::filesystem::path& folder, bool add_pooling_layer = true,
                          PretrainedReport* report = nullptr);
/// The same with a classifier: see FromPretrainedOptions.
EncoderForSequenceClassification load_encoder_classifier(const std::filesystem::path& folder,
                                                         std::int64_t num_labels = 0,
                                                         PretrainedReport* report = nullptr,
                                                         bool new_classifier = false);
EncoderForTokenClassification load_encoder_for_tokens(const std::filesystem::path& folder,
                                                      std::int64_t num_labels = 0,
                                                      PretrainedReport* report = nullptr,
                                                      bool new_classifier = false);
/// The same with the head for masked words, which is new if the file has none.
EncoderForMaskedLM load_encoder_for_masked_words(const std::filesystem::path& folder,
                                                 PretrainedReport* report = nullptr);

}  // namespace lockstep::models
