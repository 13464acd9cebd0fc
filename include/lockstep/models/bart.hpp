#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/models/generation.hpp"
#include "lockstep/models/pretrained_model.hpp"

namespace lockstep::models {

/// Configuration of an encoder-decoder of BART's kind, with the field names of Hugging Face's config.json and
/// the defaults of BART. `model_type` says which family it is:
///
/// | model_type | norms | positions | embeddings | first token of the decoder in training |
/// | --- | --- | --- | --- | --- |
/// | bart | after each part of a layer | learned | normalized | decoder_start_token_id |
/// | mbart | before, and after the last layer | learned | normalized | the target's last token: its language
/// | | m2m_100 (also NLLB) | before, and after the last layer | sines, not of padding | as they are |
/// decoder_start_token_id | | marian | after | sines | as they are | decoder_start_token_id |
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
  std::optional<std::int64_t> bos_token_id = 0;
  /// This and the forced tokens are for generate(): see GenerationConfig. from_file() reads them from
  /// generation_config.json beside the file if there is one, as in transformers, where a file without them
  /// has none.
  TokenIds eos_token_id = 2;
  /// First token of a decoder's input.
  std::optional<std::int64_t> decoder_start_token_id = 2;
  std::optional<std::int64_t> forced_bos_token_id = {};
  std::optional<std::int64_t> forced_eos_token_id = {};

  /// The family: "bart", "mbart", "m2m_100" or "marian".
  std::string model_type = "bart";
  /// The share of layers that a step of the training skips, as transformers does. Their parameters then get
  /// gradients of zero.
  double encoder_layerdrop = 0.0;
  double decoder_layerdrop = 0.0;
  /// Marian's: false for a vocabulary and an embedding of the target's own, with decoder_vocab_size tokens.
  bool share_encoder_decoder_embeddings = true;
  std::int64_t decoder_vocab_size = 0;
  /// What save_pretrained() keeps of the file; set by from_file().
  std::shared_ptr<const ModelOrigin> origin = {};

  /// The defaults of a family in Python. Throws UsageError for another model_type.
  static BartConfig of(const std::string& model_type);
  /// Reads config.json, or the one in a folder. Throws DataError, which names file and field, if it is of
  /// another model, if a field is out of range, and for features that are not implemented.
  static BartConfig from_file(const std::filesystem::path& path);
  /// The text of a config.json of the family's model for conditional generation.
  std::string to_json() const;
  /// What programs ask of it.
  ModelConfig model_config() const;
};

class BartBodyImpl;

/// An encoder-decoder transformer for pairs of texts (Vaswani et al., 2017) in the form of BART (Lewis et
/// al., 2020) and of the families above, with the parameter names of Hugging Face's
/// BartForConditionalGeneration, MBartForConditionalGeneration, M2M100ForConditionalGeneration and
/// MarianMTModel. Encoder, decoder and head share one token embedding, which is saved once.
class BartForConditionalGenerationImpl : public FamilyModel<Seq2SeqLMImpl, BartConfig> {
 public:
  /// New weights, normal with init_std. Throws UsageError if the sizes do not fit each other.
  explicit BartForConditionalGenerationImpl(const BartConfig& config = {});
  ~BartForConditionalGenerationImpl() override;

  at::Tensor states(const at::Tensor& input_ids, const at::Tensor& attention_mask,
                    const at::Tensor& decoder_input_ids) override;
  TokenHead head() const override;
  at::Tensor decoder_inputs(const at::Tensor& labels) const override;
  TokenModel decoder_of(const at::Tensor& input_ids, const at::Tensor& attention_mask) override;
  void set_first_tokens(std::optional<std::int64_t> decoder_start_token_id,
                        std::optional<std::int64_t> forced_bos_token_id) override;

 private:
  std::shared_ptr<BartBodyImpl> model_;
  at::Tensor final_logits_bias_;
};
TORCH_MODULE(BartForConditionalGeneration);

/// Reads a folder with config.json and weights. *Local*. Throws DataError. For any family:
/// AutoModelForSeq2SeqLM.
BartForConditionalGeneration load_bart(const std::filesystem::path& folder,
                                       PretrainedReport* report = nullptr);

}  // namespace lockstep::models
