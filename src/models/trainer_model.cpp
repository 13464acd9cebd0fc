#include "lockstep/models/trainer_model.hpp"

#include <fmt/core.h>

#include <iostream>

namespace lockstep::models {
namespace {

/// Once in a process: steps of an optimizer are mostly smaller than the distance of two numbers of 16 bits.
void warn_of_short_weights(torch::nn::Module& model) {
  for (const auto& entry : model.named_parameters()) {
    const auto dtype = entry.value().scalar_type();
    if (!entry.value().requires_grad() || (dtype != at::kBFloat16 && dtype != at::kHalf)) continue;
    static const bool warned = [&] {
      std::cerr << fmt::format(
                       "lockstep: warning: parameters that are trained are {}, for example '{}': small steps "
                       "of the optimizer are lost. Load the weights in float32 and compute with "
                       "mixed_precision, or freeze them and train an adapter (models::add_lora)\n",
                       c10::toString(dtype), entry.key())
                << std::flush;
      return true;
    }();
    static_cast<void>(warned);
    return;
  }
}

/// The batch's tensor of that name; undefined if it has none.
at::Tensor in_batch(const Batch& batch, const char* name) {
  return batch.contains(name) ? batch[name] : at::Tensor();
}

}  // namespace

std::shared_ptr<ModelAdapter> trainer_model(const CausalLM& model) {
  warn_of_short_weights(*model.ptr());
  return wrap_model(model, [](auto& wrapped, const Batch& batch) {
    return Batch{{"logits", wrapped(batch["input_ids"], in_batch(batch, "attention_mask"),
                                    in_batch(batch, "position_ids"))}};
  });
}

std::shared_ptr<ModelAdapter> trainer_model(const SequenceClassifier& model) {
  warn_of_short_weights(*model.ptr());
  return wrap_model(model, [](auto& wrapped, const Batch& batch) {
    return Batch{{"logits", wrapped(batch["input_ids"], in_batch(batch, "attention_mask"),
                                    in_batch(batch, "token_type_ids"))}};
  });
}

std::shared_ptr<ModelAdapter> trainer_model(const Seq2SeqLM& model) {
  warn_of_short_weights(*model.ptr());
  return wrap_model(model, [model](auto& wrapped, const Batch& batch) {
    const at::Tensor given = in_batch(batch, "decoder_input_ids");
    const at::Tensor inputs = given.defined() ? given : model->decoder_inputs(batch["labels"]);
    return Batch{{"logits", wrapped(batch["input_ids"], in_batch(batch, "attention_mask"), inputs)}};
  });
}

}  // namespace lockstep::models
