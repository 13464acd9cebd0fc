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

/// Configuration of an OPT, with the field names and defaults of Hugging Face's config.json (opt-125m).
struct OptConfig {
  std::int64_t vocab_size = 50272;
  /// The width; a multiple of num_attention_heads.
  std::int64_t hidden_size = 768;
  std::int64_t num_hidden_layers = 12;
  std::int64_t ffn_dim = 3072;
  /// Maximum input length in tokens.
  std::int64_t max_position_embeddings = 2048;
  std::int64_t num_attention_heads = 12;
  /// Width of the token embeddings; 0: hidden_size.
  std::int64_t word_embed_proj_dim = 0;
  std::string activation_function = "relu";
  double dropout = 0.1;
  double attention_dropout = 0.0;
  /// The share of layers that a step of the training skips: see BartConfig.
  double layerdrop = 0.0;
  double init_std = 0.02;
  /// Norms before the parts of a layer, and one after the last layer; false, as opt-350m: after the parts.
  bool do_layer_norm_before = true;
  bool remove_final_layer_norm = false;
  /// Whether linear layers have biases, and norms have parameters.
  bool enable_bias = true;
  bool layer_norm_elementwise_affine = true;
  std::int64_t pad_token_id = 1;
  std::int64_t bos_token_id = 2;
  /// For generate(): see GenerationConfig. from_file() reads the tokens from generation_config.json beside
  /// the file if there is one, as in transformers.
  TokenIds eos_token_id = 2;
  /// What save_pretrained() keeps of the file; set by from_file().
  std::shared_ptr<const ModelOrigin> origin = {};

  /// Reads config.json, or the one in a folder. Throws DataError, which names file and field, if it is of
  /// another model, if a field is out of range, and for features that are not implemented.
  static OptConfig from_file(const std::filesystem::path& path);
  /// The text of a config.json of an OPTForCausalLM.
  std::string to_json() const;
  /// What programs ask of it.
  ModelConfig model_config() const;
};

class OptBodyImpl;

/// OPT (Zhang et al., 2022) with its language-model head, with the parameter names of Hugging Face's
/// OPTForCausalLM. The head shares the token embedding's weights, which are saved once.
class OptForCausalLMImpl : public FamilyModel<CausalLMImpl, OptConfig> {
 public:
  /// New weights, normal with init_std. Throws UsageError if the sizes do not fit each other.
  explicit OptForCausalLMImpl(const OptConfig& config = {});
  ~OptForCausalLMImpl() override;

  at::Tensor states(const at::Tensor& input_ids, const at::Tensor& attention_mask = {},
                    const at::Tensor& position_ids = {}) override;
  TokenHead head() const override;
  at::Tensor forward_with_cache(const at::Tensor& input_ids, KeyValueCache& cache,
                                const at::Tensor& attention_mask = {}) override;

 private:
  std::shared_ptr<OptBodyImpl> model_;
};
TORCH_MODULE(OptForCausalLM);

/// Reads a folder with config.json and weights; names may begin with "model." or not. *Local*. Throws
/// DataError. For any family: AutoModelForCausalLM.
OptForCausalLM load_opt(const std::filesystem::path& folder, PretrainedReport* report = nullptr);

}  // namespace lockstep::models
