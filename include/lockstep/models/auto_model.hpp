#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/models/image_classifier.hpp"
#include "lockstep/models/nf4.hpp"
#include "lockstep/models/pretrained.hpp"
#include "lockstep/models/pretrained_model.hpp"

namespace lockstep::models {

// One door to the models of all families, with the names of transformers' classes: the field "model_type" of
// a folder's config.json determines the model. A folder is what the hub has, what Hugging Face's
// save_pretrained writes, or what save_pretrained() here writes.
//
//     auto model = models::AutoModelForCausalLM::from_pretrained("gpt2");
//     model->to(device);
//
// from_pretrained() throws DataError, naming file and field: for a model_type that is not known, listing
// those that are; for a family without a model of this task; for configurations that are invalid, need what
// is not implemented, or do not fit the weights. Weights become float32, or FromPretrainedOptions::dtype. All
// functions are *Local*; under a ShardedInit, creating a model is *Collective*.

/// Options of from_pretrained().
struct FromPretrainedOptions {
  /// For a classifier: its number of classes; 0: as in the configuration. Where the files have none, or one
  /// with another number, it is new; `report` says so. The class names of the configuration belong to its own
  /// classifier: one with another number of classes, or one that is new on request, has none until
  /// set_id2label, and no problem_type.
  std::int64_t num_labels = 0;
  /// A new classifier even if the files have one.
  bool new_classifier = false;
  /// For AutoModel: with the layer that makes `pooler_output`, if the family has one.
  bool add_pooling_layer = true;
  /// The dtype of the weights, whatever that of the files, for example at::kBFloat16: half the memory of a
  /// model that is frozen, that only answers, or that is trained with float32 copies of its weights. None:
  /// transformers' "auto", the dtype that config.json names, otherwise that of the files.
  std::optional<at::ScalarType> dtype = at::kFloat;
  /// For AutoModelForCausalLM: the linear layers of blocks are quantized as they are loaded, one at a time,
  /// to nf4 of bitsandbytes; an adapter trains the model then (QLoRA). A folder that is quantized already is
  /// loaded as it is; of this only compute_dtype counts then. Not for gpt2.
  std::optional<Nf4Options> quantization = {};
  /// Set to the names without a counterpart.
  PretrainedReport* report = nullptr;
};

/// FromPretrainedOptions::dtype by its name in Python ("bfloat16"), or "auto". Throws UsageError for others.
std::optional<at::ScalarType> dtype_of_name(const std::string& name);

/// The sizes of a new model.
struct ModelSizes {
  /// The width; a multiple of num_attention_heads. Feed-forward layers are four times as wide.
  std::int64_t hidden_size = 768;
  /// Of an encoder-decoder: of each of the two.
  std::int64_t num_hidden_layers = 12;
  std::int64_t num_attention_heads = 12;
};

/// A folder's configuration, without its weights.
struct AutoConfig {
  static ModelConfig from_pretrained(const std::filesystem::path& folder);
};

/// Models without a head.
struct AutoModel {
  static TextEncoder from_pretrained(const std::filesystem::path& folder,
                                     const FromPretrainedOptions& options = {});
  /// AutoConfig of a folder that from_pretrained() here can load.
  static ModelConfig config_of(const std::filesystem::path& folder);
};

struct AutoModelForCausalLM {
  static CausalLM from_pretrained(const std::filesystem::path& folder,
                                  const FromPretrainedOptions& options = {});
  static ModelConfig config_of(const std::filesystem::path& folder);
  /// A model with new weights, for the configuration of the folder.
  static CausalLM from_config(const std::filesystem::path& folder);
  /// A new model of the family `config.model_type`, with the family's defaults in all that the two do not
  /// say. Throws UsageError for a model_type that is not known or has no such model, and for sizes that do
  /// not fit each other.
  static CausalLM from_config(const ModelConfig& config, const ModelSizes& sizes);
};

struct AutoModelForSequenceClassification {
  static SequenceClassifier from_pretrained(const std::filesystem::path& folder,
                                            const FromPretrainedOptions& options = {});
  static ModelConfig config_of(const std::filesystem::path& folder);
};

struct AutoModelForImageClassification {
  static ImageClassifier from_pretrained(const std::filesystem::path& folder,
                                         const FromPretrainedOptions& options = {});
  static ModelConfig config_of(const std::filesystem::path& folder);
  /// A model with new weights, for the configuration of the folder.
  static ImageClassifier from_config(const std::filesystem::path& folder);
};

/// Functions as of AutoModelForSequenceClassification.
struct AutoModelForTokenClassification {
  static TokenClassifier from_pretrained(const std::filesystem::path& folder,
                                         const FromPretrainedOptions& options = {});
  static ModelConfig config_of(const std::filesystem::path& folder);
};

/// Functions as of AutoModelForCausalLM. A head that the files do not have is new.
struct AutoModelForMaskedLM {
  static MaskedLM from_pretrained(const std::filesystem::path& folder,
                                  const FromPretrainedOptions& options = {});
  static ModelConfig config_of(const std::filesystem::path& folder);
  static MaskedLM from_config(const std::filesystem::path& folder);
};

/// Functions as of AutoModelForCausalLM.
struct AutoModelForSeq2SeqLM {
  static Seq2SeqLM from_pretrained(const std::filesystem::path& folder,
                                   const FromPretrainedOptions& options = {});
  static ModelConfig config_of(const std::filesystem::path& folder);
  static Seq2SeqLM from_config(const std::filesystem::path& folder);
  static Seq2SeqLM from_config(const ModelConfig& config, const ModelSizes& sizes);
};

}  // namespace lockstep::models
