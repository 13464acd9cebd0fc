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

/// Configuration of a GPT-2, with the field names and defaults of Hugging Face's config.json (the small
/// model).
struct Gpt2Config {
  std::int64_t vocab_size = 50257;
  /// Maximum input length in tokens.
  std::int64_t n_positions = 1024;
  std::int64_t n_embd = 768;
  std::int64_t n_layer = 12;
  /// Must divide n_embd.
  std::int64_t n_head = 12;
  /// Inner width of the feed-forward layers; 0: four times n_embd.
  std::int64_t n_inner = 0;
  std::string activation_function = "gelu_new";
  double resid_pdrop = 0.1;
  double embd_pdrop = 0.1;
  double attn_pdrop = 0.1;
  double layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;
  std::int64_t bos_token_id = 50256;
  /// For generate(): see GenerationConfig. from_file() reads these and bos_token_id from
  /// generation_config.json beside the file if there is one, as in transformers, where a file without end
  /// tokens has none.
  TokenIds eos_token_id = 50256;
  std::optional<std::int64_t> pad_token_id = {};

  /// Reads config.json, or the one in a folder. Throws DataError, which names file and field, if it is of
  /// another model, if a field is out of range, and for features that are not implemented.
  static Gpt2Config from_file(const std::filesystem::path& path);
  /// The text of a config.json of a GPT2LMHeadModel.
  std::string to_json() const;
};

struct KeyValueCache;
class Gpt2BodyImpl;

/// GPT-2 (Radford et al., 2019) with its language-model head, with the parameter names of Hugging Face's
/// GPT2LMHeadModel. The head shares the token embedding's weights, which are saved once.
class Gpt2LMHeadModelImpl : public torch::nn::Module {
 public:
  /// New weights, initialized as in Python's class. Throws UsageError if the sizes do not fit each other.
  explicit Gpt2LMHeadModelImpl(const Gpt2Config& config = {});
  ~Gpt2LMHeadModelImpl() override;

  /// Logits [rows, tokens, vocab_size] for `input_ids`, integers [rows, tokens]. `attention_mask` [rows,
  /// tokens] is 0 for padding; padding at the end needs no mask, because no token attends to later ones.
  /// `position_ids`, integers of the same shape below n_positions, is each token's position in its text; 0,
  /// 1, 2, ... by default. Without an attention_mask, a position that is not the previous one plus 1 starts
  /// another text, whose tokens do not attend to other texts, as in transformers: see flatten_collate().
  at::Tensor forward(const at::Tensor& input_ids, const at::Tensor& attention_mask = {},
                     const at::Tensor& position_ids = {});

  /// The same for tokens that follow those in `cache`; adds them to the cache.
  at::Tensor forward_with_cache(const at::Tensor& input_ids, KeyValueCache& cache);

  const Gpt2Config& config() const noexcept { return config_; }

 private:
  Gpt2Config config_;
  std::shared_ptr<Gpt2BodyImpl> transformer_;
};
TORCH_MODULE(Gpt2LMHeadModel);

/// The mean cross entropy of each token given those before it. `labels` [rows, tokens] are the input ids, or
/// -100 for ignored tokens. A scalar.
at::Tensor causal_lm_loss(const at::Tensor& logits, const at::Tensor& labels);

/// Continues `input_ids` [rows, tokens], all rows without padding. No gradients; the model should be in
/// evaluation mode. End and padding tokens default to those of the model's configuration. *Local*.
at::Tensor generate(Gpt2LMHeadModel& model, const at::Tensor& input_ids, GenerationConfig config = {});

/// Reads a folder with config.json and weights, as written by Hugging Face's save_pretrained or by
/// save_pretrained() below; names may begin with "transformer." or not. *Local*. Throws DataError.
Gpt2LMHeadModel load_gpt2(const std::filesystem::path& folder);
/// Writes config.json and model.safetensors, for load_gpt2 and for Hugging Face's from_pretrained. *Local*.
void save_pretrained(Gpt2LMHeadModel& model, const std::filesystem::path& folder);

}  // namespace lockstep::models
