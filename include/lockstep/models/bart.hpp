#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/models/generation.hpp"
#include "lockstep/models/pretrained.hpp"

namespace lockstep::models {

/// Configuration of an encoder-decoder, with the field names and defaults of Hugging Face's config.json for
/// BART.
struct BartConfig {
  std::int64_t vocab_size = 50265;
  /// Maximum input length in tokens.
  std::int64_t max_position_embeddings = 1024;
  /// The width; a multiple of both numbers of heads.
  std::int64_t d_model = 1024;
  std::int64_t encoder_layers = 12;
  std::int64_t encoder_attention_heads = 16;
  std::int64_t encoder_ffn_dim = 4096;
  std::int64_t decoder_layers = 12;
  std::int64_t decoder_attention_heads = 16;
  std::int64_t decoder_ffn_dim = 4096;
  std::string activation_function = "gelu";
  double dropout = 0.1;
  double attention_dropout = 0.0;
  double activation_dropout = 0.0;
  double init_std = 0.02;
  /// Multiply token embeddings by the square root of d_model.
  bool scale_embedding = false;
  std::int64_t pad_token_id = 1;
  std::int64_t bos_token_id = 0;
  /// This and the forced tokens are for generate(): see GenerationConfig. from_file() reads them from
  /// generation_config.json beside the file if there is one, as in transformers, where a file without them
  /// has none.
  TokenIds eos_token_id = 2;
  /// First token of a decoder's input.
  std::int64_t decoder_start_token_id = 2;
  std::optional<std::int64_t> forced_bos_token_id = {};
  std::optional<std::int64_t> forced_eos_token_id = {};

  /// Reads config.json, or the one in a folder. Throws DataError, which names file and field, if it is of
  /// another model, if a field is out of range, and for features that are not implemented.
  static BartConfig from_file(const std::filesystem::path& path);
  /// The text of a config.json of a BartForConditionalGeneration.
  std::string to_json() const;
};

class BartBodyImpl;

/// An encoder-decoder transformer for pairs of texts (Vaswani et al., 2017, in the form of BART, Lewis et
/// al., 2020), with the parameter names of Hugging Face's BartForConditionalGeneration. Encoder, decoder and
/// head share one token embedding, which is saved once.
class BartForConditionalGenerationImpl : public torch::nn::Module {
 public:
  /// New weights, normal with init_std. Throws UsageError if the sizes do not fit each other.
  explicit BartForConditionalGenerationImpl(const BartConfig& config = {});
  ~BartForConditionalGenerationImpl() override;

  /// Logits [rows, target tokens, vocab_size]. `input_ids` [rows, source tokens] with `attention_mask` (1 for
  /// tokens, 0 for padding; undefined: no padding); `decoder_input_ids` [rows, target tokens], as returned by
  /// shift_right.
  at::Tensor forward(const at::Tensor& input_ids, const at::Tensor& attention_mask,
                     const at::Tensor& decoder_input_ids);

  const BartConfig& config() const noexcept { return config_; }
  BartBodyImpl& body() noexcept { return *model_; }
  /// Logits of decoder states.
  at::Tensor head(const at::Tensor& states) const;

 private:
  BartConfig config_;
  std::shared_ptr<BartBodyImpl> model_;
  at::Tensor final_logits_bias_;
};
TORCH_MODULE(BartForConditionalGeneration);

/// The decoder's input for these labels: shifted right by one after decoder_start_token_id; -100 becomes
/// padding.
at::Tensor shift_right(const at::Tensor& labels, const BartConfig& config);

/// The mean cross entropy of logits [rows, tokens, vocabulary] and labels [rows, tokens]; -100 is ignored.
at::Tensor sequence_loss(const at::Tensor& logits, const at::Tensor& labels);

/// Generates target texts for source texts: int64 [rows, 1 + at most max_new_tokens], starting with
/// decoder_start_token_id. No gradients; the model should be in evaluation mode. End, padding and
/// forced tokens default to those of the model's configuration. *Local*.
at::Tensor generate(BartForConditionalGeneration& model, const at::Tensor& input_ids,
                    const at::Tensor& attention_mask = {}, GenerationConfig config = {});

/// Reads a folder with config.json and weights. *Local*. Throws DataError.
BartForConditionalGeneration load_bart(const std::filesystem::path& folder);
/// Writes config.json and model.safetensors, for load_bart and for Hugging Face's from_pretrained. *Local*.
void save_pretrained(BartForConditionalGeneration& model, const std::filesystem::path& folder);

}  // namespace lockstep::models
