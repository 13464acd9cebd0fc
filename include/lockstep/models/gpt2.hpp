#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "lockstep/models/generation.hpp"
#include "lockstep/models/pretrained.hpp"

namespace lockstep::models {

/// A GPT-2's sizes, with the field names and defaults of Hugging Face's config.json (the small model).
struct Gpt2Config {
  std::int64_t vocab_size = 50257;
  /// The longest input in tokens.
  std::int64_t n_positions = 1024;
  std::int64_t n_embd = 768;
  std::int64_t n_layer = 12;
  /// Divides n_embd.
  std::int64_t n_head = 12;
  /// The inner width of the feed-forward layers; 0: four times n_embd.
  std::int64_t n_inner = 0;
  std::string activation_function = "gelu_new";
  double resid_pdrop = 0.1;
  double embd_pdrop = 0.1;
  double attn_pdrop = 0.1;
  double layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;
  std::int64_t bos_token_id = 50256;
  std::int64_t eos_token_id = 50256;

  /// Reads config.json, or the one in a folder. Throws DataError, naming file and field, for another model's,
  /// for a field out of range, and for what is not implemented.
  static Gpt2Config from_file(const std::filesystem::path& path);
  /// As the text of a config.json of a GPT2LMHeadModel.
  std::string to_json() const;
};

struct KeyValueCache;
class Gpt2BodyImpl;

/// GPT-2 (Radford et al., 2019) with its language-model head: the parameter names of Hugging Face's
/// GPT2LMHeadModel. The head's weights are the token embedding's; they are written once.
class Gpt2LMHeadModelImpl : public torch::nn::Module {
 public:
  /// New weights, drawn as Python's class draws them. Throws UsageError for sizes that do not fit each other.
  explicit Gpt2LMHeadModelImpl(const Gpt2Config& config = {});
  ~Gpt2LMHeadModelImpl() override;

  /// Logits [rows, tokens, vocab_size] for `input_ids`, integers [rows, tokens]. `attention_mask` [rows,
  /// tokens] is 0 for padding; padding behind the tokens needs none, because no token looks at what follows
  /// it. `position_ids`, integers of the same shape below n_positions: each token's place in its text, 0, 1,
  /// 2 and on without them. Without an attention_mask a place that does not follow the one before it begins
  /// another text, which looks at no other, as in transformers: see flatten_collate().
  at::Tensor forward(const at::Tensor& input_ids, const at::Tensor& attention_mask = {},
                     const at::Tensor& position_ids = {});

  /// The same for tokens that follow those in `cache`, and adds them to it.
  at::Tensor forward_with_cache(const at::Tensor& input_ids, KeyValueCache& cache);

  const Gpt2Config& config() const noexcept { return config_; }

 private:
  Gpt2Config config_;
  std::shared_ptr<Gpt2BodyImpl> transformer_;
};
TORCH_MODULE(Gpt2LMHeadModel);

/// The mean cross-entropy of each token given those before it: `labels` [rows, tokens] are the input ids,
/// -100 where a token does not count. A scalar.
at::Tensor causal_lm_loss(const at::Tensor& logits, const at::Tensor& labels);

/// Goes on from `input_ids` [rows, tokens], all rows without padding. No gradients; the model should be in
/// evaluation mode. The end token is the configuration's where `config` has none. *Local*.
at::Tensor generate(Gpt2LMHeadModel& model, const at::Tensor& input_ids, GenerationConfig config = {});

/// Reads a folder with config.json and weights, as Hugging Face's save_pretrained and save_pretrained() below
/// leave it, with or without names that begin with "transformer.". *Local*. Throws DataError.
Gpt2LMHeadModel load_gpt2(const std::filesystem::path& folder);
/// Writes config.json and model.safetensors, for load_gpt2 and for Hugging Face's from_pretrained. *Local*.
void save_pretrained(Gpt2LMHeadModel& model, const std::filesystem::path& folder);

}  // namespace lockstep::models
