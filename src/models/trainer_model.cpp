#include "lockstep/models/trainer_model.hpp"

namespace lockstep::models {
namespace {

/// The batch's tensor of that name; undefined if it has none.
at::Tensor in_batch(const Batch& batch, const char* name) {
  return batch.contains(name) ? batch[name] : at::Tensor();
}

}  // namespace

std::shared_ptr<ModelAdapter> trainer_model(const CausalLM& model) {
  return wrap_model(model, [](auto& wrapped, const Batch& batch) {
    return Batch{{"logits", wrapped(batch["input_ids"], in_batch(batch, "attention_mask"),
                                    in_batch(batch, "position_ids"))}};
  });
}

std::shared_ptr<ModelAdapter> trainer_model(const SequenceClassifier& model) {
  return wrap_model(model, [](auto& wrapped, const Batch& batch) {
    return Batch{{"logits", wrapped(batch["input_ids"], in_batch(batch, "attention_mask"),
                                    in_batch(batch, "token_type_ids"))}};
  });
}

std::shared_ptr<ModelAdapter> trainer_model(const Seq2SeqLM& model) {
  return wrap_model(model, [model](auto& wrapped, const Batch& batch) {
    const at::Tensor given = in_batch(batch, "decoder_input_ids");
    const at::Tensor inputs = given.defined() ? given : model->decoder_inputs(batch["labels"]);
    return Batch{{"logits", wrapped(batch["input_ids"], in_batch(batch, "attention_mask"), inputs)}};
  });
}

}  // namespace lockstep::models
