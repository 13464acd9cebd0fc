#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/models/image_classifier.hpp"
#include "lockstep/models/pretrained_model.hpp"
#include "lockstep/train/model_adapter.hpp"

namespace lockstep::models {

// Models of any family as a Trainer's. The columns of a batch have the names of transformers, and are the
// arguments of forward:
//
//     lockstep::Trainer trainer(args, {.model = models::trainer_model(model), .train_dataset = train});
//
// The outputs of a language model for a batch with "labels" are its loss, "loss_sum" and "loss_weight", with
// the Trainer's label_smoothing_factor, and in evaluation mode "predictions", the most probable tokens
// [rows, tokens] (see TokenLosses). Whole logits of large vocabularies exist only where they are asked for.

/// When a language model's outputs contain "logits" [rows, tokens, vocabulary].
enum class LogitsOutput {
  /// Only for a batch without labels.
  without_labels,
  /// Also in evaluation mode, for compute_metrics and predict().
  in_evaluation,
  /// Also in training, for a compute_loss of the program.
  always,
};

struct LanguageModelOutputs {
  LogitsOutput logits = LogitsOutput::without_labels;
  /// See TokenLossOptions.
  std::int64_t logits_at_a_time = 0;
};

/// "input_ids" and, where the batch has them, "labels", "attention_mask" and "position_ids". *Local*.
std::shared_ptr<ModelAdapter> trainer_model(const CausalLM& model, const LanguageModelOutputs& outputs = {});
/// "input_ids" and, where the batch has them, "attention_mask" and "token_type_ids". The output is "logits".
/// *Local*.
std::shared_ptr<ModelAdapter> trainer_model(const SequenceClassifier& model);
/// The same, and where the batch has them "labels", int64 [rows, tokens], with -100 for tokens that do not
/// count: then the outputs are also "loss_sum" and "loss_weight", with the Trainer's label_smoothing_factor.
/// *Local*.
std::shared_ptr<ModelAdapter> trainer_model(const TokenClassifier& model);
/// "input_ids" and, where the batch has them, "labels", "attention_mask", "token_type_ids" and
/// "position_ids". *Local*.
std::shared_ptr<ModelAdapter> trainer_model(const MaskedLM& model, const LanguageModelOutputs& outputs = {});
/// "pixel_values", as transformers' batches have them, or "image" of this library's data sets: floating point
/// [rows, channels, height, width]. The output is "logits". *Local*.
std::shared_ptr<ModelAdapter> trainer_model(const ImageClassifier& model);
/// "input_ids", where the batch has them "labels" and "attention_mask", and "decoder_input_ids", by default
/// those of the labels. *Local*.
std::shared_ptr<ModelAdapter> trainer_model(const Seq2SeqLM& model, const LanguageModelOutputs& outputs = {});

}  // namespace lockstep::models
