#include "lockstep/models/sentence_encoder.hpp"

#include <ATen/ATen.h>
#include <fmt/core.h>

#include <utility>

#include "lockstep/core/error.hpp"
#include "models/sentence_encoder_files.hpp"

namespace lockstep::models {
namespace {

at::Tensor pooled_by(PoolingMode mode, const at::Tensor& states, const at::Tensor& mask) {
  const at::Tensor counts = mask.unsqueeze(-1).to(states.scalar_type());
  const auto length = states.size(1);
  switch (mode) {
    case PoolingMode::cls:
      return states.select(1, 0);
    case PoolingMode::max:
      return states.masked_fill(counts == 0, -1e9).amax(1);
    case PoolingMode::mean:
      return (states * counts).sum(1) / counts.sum(1).clamp_min(1e-9);
    case PoolingMode::mean_sqrt_len_tokens:
      return (states * counts).sum(1) / counts.sum(1).clamp_min(1e-9).sqrt();
    case PoolingMode::weightedmean: {
      const at::Tensor places = at::arange(1, length + 1, counts.options()).view({1, length, 1}) * counts;
      return (states * places).sum(1) / places.sum(1).clamp_min(1e-9);
    }
    case PoolingMode::lasttoken:
      break;
  }
  // From the end, the first that is no padding.
  const at::Tensor last = length - 1 - mask.ne(0).to(at::kLong).flip({1}).argmax(1);
  const at::Tensor places = last.view({-1, 1, 1}).expand({-1, 1, states.size(2)});
  return states.gather(1, places).squeeze(1);
}

}  // namespace

at::Tensor pool(const at::Tensor& states, const at::Tensor& attention_mask,
                const std::vector<PoolingMode>& modes) {
  const bool fits = states.dim() == 3 && !modes.empty() &&
                    (!attention_mask.defined() || attention_mask.sizes() == states.sizes().slice(0, 2));
  if (!fits) {
    throw UsageError(fmt::format(
        "pool takes states [rows, tokens, width], a mask [rows, tokens] and at least one mode; got {}, {} "
        "and {}",
        c10::str(states.sizes()),
        attention_mask.defined() ? c10::str(attention_mask.sizes()) : std::string("no mask"), modes.size()));
  }
  const at::Tensor mask = attention_mask.defined()
                              ? attention_mask
                              : at::ones(states.sizes().slice(0, 2), states.options().dtype(at::kLong));
  std::vector<at::Tensor> vectors;
  for (const auto mode : modes) vectors.push_back(pooled_by(mode, states, mask));
  return vectors.size() == 1 ? vectors[0] : at::cat(vectors, 1);
}

SentenceEncoderImpl::SentenceEncoderImpl(TextEncoder encoder, SentenceEncoderConfig config)
    : encoder_(std::move(encoder)), config_(std::move(config)) {
  register_module("encoder", encoder_);
  // It would never get a gradient, for which DistributedDataParallel would wait.
  for (auto& entry : encoder_->named_parameters())
    if (entry.key().starts_with("pooler.")) entry.value().set_requires_grad(false);
}

at::Tensor SentenceEncoderImpl::forward(const at::Tensor& input_ids, const at::Tensor& attention_mask,
                                        const at::Tensor& token_type_ids) {
  const auto output = encoder_->forward(input_ids, attention_mask, token_type_ids);
  const at::Tensor vectors = pool(output.last_hidden_state, attention_mask, config_.pooling);
  return config_.normalize ? vectors / vectors.norm(2, {1}, /*keepdim=*/true).clamp_min(1e-12) : vectors;
}

SentenceEncoder load_sentence_encoder(const std::filesystem::path& folder,
                                      const FromPretrainedOptions& options) {
  if (!std::filesystem::exists(folder / kModulesFileName))
    return SentenceEncoder(AutoModel::from_pretrained(folder, options));
  auto config = SentenceEncoderConfig::from_file(folder);
  return SentenceEncoder(AutoModel::from_pretrained(folder / transformer_path(folder), options),
                         std::move(config));
}

void save_pretrained(const SentenceEncoder& model, const std::filesystem::path& folder) {
  save_pretrained(model->encoder(), folder);
  // The files that the encoder brought along may be those of another pooling.
  const bool has_files = std::filesystem::exists(folder / kModulesFileName);
  if (!has_files || SentenceEncoderConfig::from_file(folder) != model->config())
    write_sentence_files(model->config(), model->encoder()->config_json(), folder);
  make_module_folders(folder);
}

}  // namespace lockstep::models
