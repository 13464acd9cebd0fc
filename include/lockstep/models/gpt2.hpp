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
  /// What save_pretrained() keeps of the file; set by from_file().
  std::shared_ptr<const ModelOrigin> origin = {};

  /// Reads config.json, or the one in a folder. Throws DataError, which names file and field, if it is of
  /// another model, if a field is out of range, and for features that are not implemented.
  static Gpt2Config from_file(const std::filesystem::path& path);
  /// The text of a config.json of a GPT2LMHeadModel.
  std::string to_json() const;
  /// What programs ask of it.
  ModelConfig model_config() const;
};

class Gpt2BodyImpl;

/// GPT-2 (Radford et al., 2019) with its language-model head, with the parameter names of Hugging Face's
/// GPT2LMHeadModel. The head shares the token embedding's weights, which are saved once.
class Gpt2LMHeadModelImpl : public FamilyModel<CausalLMImpl, Gpt2Config> {
 public:
  /// New weights, initialized as in Python's class. Throws UsageError if the sizes do not fit each other.
  explicit Gpt2LMHeadModelImpl(const Gpt2Config& config = {});
  ~Gpt2LMHeadModelImpl() override;

  at::Tensor states(const at::Tensor& input_ids, const at::Tensor& attention_mask = {},
                    const at::Tensor& position_ids = {}) override;
  TokenHead head() const override;
  at::Tensor forward_with_cache(const at::Tensor& input_ids, KeyValueCache& cache,
                                const at::Tensor& attention_mask = {}) override;

 private:
  std::shared_ptr<Gpt2BodyImpl> transformer_;
};
TORCH_MODULE(Gpt2LMHeadModel);

/// Reads a folder with config.json and weights, as written by Hugging Face's save_pretrained or by
/// save_pretrained(); names may begin with "transformer." or not. *Local*. Throws DataError. For any family:
/// AutoModelForCausalLM.
Gpt2LMHeadModel load_gpt2(const std::filesystem::path& folder, PretrainedReport* report = nullptr);

}  // namespace lockstep::models
