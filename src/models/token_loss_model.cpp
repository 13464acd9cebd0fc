#include "lockstep/models/token_loss_model.hpp"

namespace lockstep::models {

TokenLossModelImpl::TokenLossModelImpl(const CausalLM& model) : model_(model.ptr()) {
  share_parts();
  losses_ = [impl = model.ptr().get()](const LabelledTexts& texts) {
    return impl->token_losses(texts.labels, texts.options, texts.input_ids, texts.attention_mask,
                              texts.position_ids);
  };
}

TokenLossModelImpl::TokenLossModelImpl(const MaskedLM& model) : model_(model.ptr()) {
  share_parts();
  losses_ = [impl = model.ptr().get()](const LabelledTexts& texts) {
    return impl->token_losses(texts.labels, texts.options, texts.input_ids, texts.attention_mask,
                              texts.token_type_ids, texts.position_ids);
  };
}

TokenLossModelImpl::TokenLossModelImpl(const Seq2SeqLM& model) : model_(model.ptr()) {
  share_parts();
  losses_ = [impl = model.ptr().get()](const LabelledTexts& texts) {
    return impl->token_losses(texts.labels, texts.options, texts.input_ids, texts.attention_mask,
                              texts.decoder_input_ids);
  };
}

void TokenLossModelImpl::share_parts() {
  for (const auto& entry : model_->named_parameters(/*recurse=*/false))
    register_parameter(entry.key(), entry.value(), entry.value().requires_grad());
  for (const auto& entry : model_->named_buffers(/*recurse=*/false))
    register_buffer(entry.key(), entry.value());
  for (const auto& child : model_->named_children()) register_module(child.key(), child.value());
}

void TokenLossModelImpl::train(bool on) {
  Module::train(on);
  model_->train(on);
}

}  // namespace lockstep::models
