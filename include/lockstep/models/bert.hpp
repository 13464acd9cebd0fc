#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/models/pretrained_model.hpp"

namespace lockstep::models {

/// Configuration of a BERT, with the field names and defaults of Hugging Face's config.json (bert-base).
struct BertConfig {
  std::int64_t vocab_size = 30522;
  std::int64_t hidden_size = 768;
  std::int64_t num_hidden_layers = 12;
  /// Must divide hidden_size.
  std::int64_t num_attention_heads = 12;
  std::int64_t intermediate_size = 3072;
  std::string hidden_act = "gelu";
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  /// Dropout before a BertForSequenceClassification's classifier; none: hidden_dropout_prob.
  std::optional<double> classifier_dropout = {};
  /// Maximum input length in tokens.
  std::int64_t max_position_embeddings = 512;
  std::int64_t type_vocab_size = 2;
  double initializer_range = 0.02;
  double layer_norm_eps = 1e-12;
  /// Its embedding gets no gradient. None, as "pad_token_id": null in a file: all embeddings are trained.
  std::optional<std::int64_t> pad_token_id = 0;
  /// Number of classes of a BertForSequenceClassification.
  std::int64_t num_labels = 2;
  /// Names of the classes by number, num_labels of them; empty: LABEL_0, LABEL_1, ... (see class_names.hpp).
  std::vector<std::string> id2label = {};

  /// What the classifier's numbers are: "regression", "single_label_classification" or
  /// "multi_label_classification"; empty: not said. Kept for Python, which chooses the loss by it.
  std::string problem_type = {};
  /// What save_pretrained() keeps of the file; set by from_file().
  std::shared_ptr<const ModelOrigin> origin = {};

  /// Reads config.json, or the one in a folder. If it has "id2label", that defines the number of classes, as
  /// in transformers. Throws DataError, which names file and field, if it is of another model, if a field is
  /// out of range, and for features that are not implemented (relative positions, a decoder).
  static BertConfig from_file(const std::filesystem::path& path);
  /// The text of a config.json, with the class names as id2label and label2id. `architecture` is the class of
  /// the weights in Python. Throws UsageError if id2label does not name num_labels classes.
  std::string to_json(const std::string& architecture) const;
  /// What programs ask of it.
  ModelConfig model_config() const;
};

class BertEmbeddingsImpl;
class BertEncoderImpl;
class BertPoolerImpl;

/// BERT (Devlin et al., 2019) with the parameter names of Hugging Face's BertModel. Attention uses
/// scaled_dot_product_attention.
class BertModelImpl : public TextEncoderImpl {
 public:
  /// New weights, initialized as in Python's class (normal with initializer_range; biases zero). Throws
  /// UsageError if the sizes do not fit each other.
  explicit BertModelImpl(const BertConfig& config = {}, bool add_pooling_layer = true);
  ~BertModelImpl() override;

  /// `input_ids` are integers [rows, tokens]. `attention_mask` [rows, tokens] is 1 for tokens and 0 for
  /// padding (undefined: no padding). `token_type_ids` has the same shape (undefined: all 0). `position_ids`,
  /// integers of the same shape below max_position_embeddings, is each token's position in its text
  /// (undefined: 0, 1, ... in each row). Without an attention_mask, a position that is not the previous one
  /// plus 1 starts another text, and tokens only attend to their own text: see flatten_collate(). Throws
  /// UsageError for other shapes or too many tokens.
  TextEncoderOutput forward(const at::Tensor& input_ids, const at::Tensor& attention_mask = {},
                            const at::Tensor& token_type_ids = {},
                            const at::Tensor& position_ids = {}) override;

  const BertConfig& config() const noexcept { return config_; }
  ModelConfig model_config() const override { return config_.model_config(); }
  std::string config_json() const override { return config_.to_json("BertModel"); }
  std::shared_ptr<const ModelOrigin> origin() const override { return config_.origin; }

 private:
  BertConfig config_;
  std::shared_ptr<BertEmbeddingsImpl> embeddings_;
  std::shared_ptr<BertEncoderImpl> encoder_;
  std::shared_ptr<BertPoolerImpl> pooler_;
};
TORCH_MODULE(BertModel);

/// A BERT with a linear layer on its pooled output, as Hugging Face's BertForSequenceClassification.
class BertForSequenceClassificationImpl : public SequenceClassifierImpl {
 public:
  /// Throws UsageError if `config` does not name as many classes as it has.
  explicit BertForSequenceClassificationImpl(const BertConfig& config = {});

  at::Tensor forward(const at::Tensor& input_ids, const at::Tensor& attention_mask = {},
                     const at::Tensor& token_type_ids = {}) override;

  void set_id2label(std::vector<std::string> names) override;
  const BertConfig& config() const noexcept { return config_; }
  ModelConfig model_config() const override { return config_.model_config(); }
  std::string config_json() const override { return config_.to_json("BertForSequenceClassification"); }
  std::shared_ptr<const ModelOrigin> origin() const override { return config_.origin; }

 private:
  BertConfig config_;
  BertModel bert_{nullptr};
  torch::nn::Dropout dropout_{nullptr};
  torch::nn::Linear classifier_{nullptr};
};
TORCH_MODULE(BertForSequenceClassification);

/// Reads a folder with config.json and weights, as written by Hugging Face's save_pretrained or by
/// save_pretrained(). The file may have other heads, or be of a model with a head. *Local*. Throws DataError.
/// For any family: AutoModel.
BertModel load_bert(const std::filesystem::path& folder, bool add_pooling_layer = true,
                    PretrainedReport* report = nullptr);
/// The same with a classifier: see FromPretrainedOptions, and AutoModelForSequenceClassification for any
/// family.
BertForSequenceClassification load_bert_classifier(const std::filesystem::path& folder,
                                                   std::int64_t num_labels = 0,
                                                   PretrainedReport* report = nullptr,
                                                   bool new_classifier = false);

}  // namespace lockstep::models
