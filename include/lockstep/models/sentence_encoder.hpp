#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/models/auto_model.hpp"
#include "lockstep/models/pretrained_model.hpp"

namespace lockstep::models {

/// How the vectors of a text's tokens become one, with the names of sentence-transformers.
enum class PoolingMode { cls, max, mean, mean_sqrt_len_tokens, weightedmean, lasttoken };

/// What follows the encoder in a folder of sentence-transformers.
struct SentenceEncoderConfig {
  /// Several are put one after another, in the order of PoolingMode.
  std::vector<PoolingMode> pooling = {PoolingMode::mean};
  /// Vectors of length 1.
  bool normalize = true;
  /// The most tokens of a text; 0: as many as the encoder takes.
  std::int64_t max_seq_length = 0;
  /// Texts are to be put into lower case before they are tokenized, which is not the encoder's.
  bool do_lower_case = false;

  /// Reads modules.json and the settings that it names. Throws DataError, naming file and field, for modules
  /// and pooling modes that are not implemented, and for folders without modules.json.
  static SentenceEncoderConfig from_file(const std::filesystem::path& folder);

  bool operator==(const SentenceEncoderConfig&) const = default;
};

/// The vector of each text [rows, width] of the states [rows, tokens, width] of its tokens. `attention_mask`
/// [rows, tokens] is 0 for padding; undefined: there is none. *Local*. Throws UsageError for other shapes.
at::Tensor pool(const at::Tensor& states, const at::Tensor& attention_mask,
                const std::vector<PoolingMode>& modes);

/// An encoder of texts with pooling and normalization: a SentenceTransformer.
class SentenceEncoderImpl : public torch::nn::Module {
 public:
  /// Shares `encoder`, whose layer that makes pooler_output is frozen: pooling does not use it.
  explicit SentenceEncoderImpl(TextEncoder encoder, SentenceEncoderConfig config = {});

  /// The vectors [rows, width] of texts; inputs as for TextEncoder.
  at::Tensor forward(const at::Tensor& input_ids, const at::Tensor& attention_mask = {},
                     const at::Tensor& token_type_ids = {});

  const TextEncoder& encoder() const noexcept { return encoder_; }
  const SentenceEncoderConfig& config() const noexcept { return config_; }

 private:
  TextEncoder encoder_;
  SentenceEncoderConfig config_;
};
TORCH_MODULE(SentenceEncoder);

/// Opens a folder of sentence-transformers, or any folder of AutoModel's, which gets the defaults of
/// SentenceEncoderConfig. *Local*. Throws DataError.
SentenceEncoder load_sentence_encoder(const std::filesystem::path& folder,
                                      const FromPretrainedOptions& options = {});

/// Writes a folder for sentence-transformers and load_sentence_encoder(): that of save_pretrained(), with
/// modules.json and the settings that it names. Those of the folder that the encoder came from are kept. The
/// files of the tokenizer are saved with the tokenizer. *Local*. Throws Error if writing fails.
void save_pretrained(const SentenceEncoder& model, const std::filesystem::path& folder);

}  // namespace lockstep::models
