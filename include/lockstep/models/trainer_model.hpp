#pragma once

#include <memory>

#include "lockstep/models/pretrained_model.hpp"
#include "lockstep/train/model_adapter.hpp"

namespace lockstep::models {

// Models of any family as a Trainer's: their output is "logits". The columns of a batch have the names of
// transformers, and are the arguments of forward:
//
//     lockstep::Trainer trainer(args, {.model = models::trainer_model(model), .train_dataset = train,
//                                      .compute_loss = loss});

/// "input_ids" and, where the batch has them, "attention_mask" and "position_ids". *Local*.
std::shared_ptr<ModelAdapter> trainer_model(const CausalLM& model);
/// "input_ids" and, where the batch has them, "attention_mask" and "token_type_ids". *Local*.
std::shared_ptr<ModelAdapter> trainer_model(const SequenceClassifier& model);
/// "input_ids", where the batch has it "attention_mask", and "decoder_input_ids", by default those of
/// "labels". *Local*.
std::shared_ptr<ModelAdapter> trainer_model(const Seq2SeqLM& model);

}  // namespace lockstep::models
