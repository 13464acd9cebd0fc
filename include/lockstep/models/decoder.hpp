#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/models/generation.hpp"
#include "lockstep/models/pretrained_model.hpp"

namespace lockstep::models {

// One decoder for the families that people train today: llama, mistral, qwen2, qwen3, gemma, gemma2,
// gemma3_text, phi3, smollm3, granite, olmo2. The configuration says what a layer does, and not which family
// it is of; the modules have Hugging Face's names. For a folder of any family: AutoModelForCausalLM.

/// How the frequencies of rotary positions are changed for longer texts, as transformers' rope_type says.
struct RopeScaling {
  /// "default" (unchanged), "linear", "dynamic", "yarn", "llama3" or "longrope".
  std::string rope_type = "default";
  /// How many times longer texts become. None, for yarn and longrope: max_position_embeddings divided by
  /// original_max_position_embeddings.
  std::optional<double> factor = {};
  /// The longest text before; for yarn, llama3 and longrope.
  std::int64_t original_max_position_embeddings = 0;
  /// Multiplies cosines and sines; for yarn and longrope. None: as their papers say.
  std::optional<double> attention_factor = {};
  /// For yarn.
  double beta_fast = 32, beta_slow = 1;
  std::optional<double> mscale = {}, mscale_all_dim = {};
  bool truncate = true;
  /// For llama3.
  double low_freq_factor = 1, high_freq_factor = 4;
  /// For longrope: a divisor of each frequency, for texts up to the original length and for longer ones.
  std::vector<double> short_factor = {}, long_factor = {};

  bool operator==(const RopeScaling&) const = default;
};

/// Rotary positions (Su et al., 2021), in halves: element i is rotated with element i + size / 2.
struct RopeConfig {
  double theta = 10000;
  /// The share of a head's elements that is rotated: its first ones.
  double partial_rotary_factor = 1;
  RopeScaling scaling = {};

  bool operator==(const RopeConfig&) const = default;
};

/// What one layer of a decoder does.
struct DecoderLayerConfig {
  /// The last tokens that a token attends to, with itself; 0: all.
  std::int64_t window = 0;
  /// Which of DecoderConfig::ropes; none: queries and keys have no positions.
  std::optional<std::size_t> rope = 0;

  bool operator==(const DecoderLayerConfig&) const = default;
};

/// Where a layer has norms: before attention and feed-forward part, around both, or after both.
enum class NormPlaces { before, around, after };
/// Norms of queries and keys: none, of each head, or of all heads together.
enum class QkNorm { none, head, whole };
/// How an RMSNorm uses its weight w. In all of them the norm itself is in float32; `after_cast`: w times it,
/// in the states' dtype; `in_float32`: w times it, then the cast; `plus_one`: 1 + w times it, then the cast.
enum class NormWeight { after_cast, in_float32, plus_one };

/// Configuration of a decoder. Where a field is one of Hugging Face's config.json, it has its name.
struct DecoderConfig {
  /// The family: it determines the form of config.json, and the class of the weights in Python.
  std::string model_type = "llama";
  std::int64_t vocab_size = 32000;
  std::int64_t hidden_size = 4096;
  std::int64_t intermediate_size = 11008;
  std::int64_t num_attention_heads = 32;
  /// Heads of keys and values; a divisor of num_attention_heads.
  std::int64_t num_key_value_heads = 32;
  /// Elements of a head: even.
  std::int64_t head_dim = 128;
  /// For generate() and the scalings of positions; longer texts are taken as well.
  std::int64_t max_position_embeddings = 2048;
  double rms_norm_eps = 1e-6;
  /// Of the gated feed-forward part: see activate().
  std::string hidden_act = "silu";
  double initializer_range = 0.02;
  double attention_dropout = 0;
  /// Of the two branches of a layer.
  double resid_pdrop = 0;
  /// The head shares the embedding's weights.
  bool tie_word_embeddings = false;

  NormPlaces norms = NormPlaces::before;
  NormWeight norm_weight = NormWeight::after_cast;
  QkNorm qk_norm = QkNorm::none;
  /// Biases of queries, keys and values; of attention's output; of the feed-forward part.
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  /// One layer makes queries, keys and values (qkv_proj), and another both inputs of the gate (gate_up_proj).
  bool fused = false;
  /// Cosines and sines stay float32 until queries and keys are rotated.
  bool rope_in_float32 = false;

  /// Multiply the embeddings, each branch of a layer, and the products of queries and keys; none, for the
  /// last: head_dim^-0.5.
  double embedding_scale = 1, residual_scale = 1;
  std::optional<double> attention_scale = {};
  /// The embedding's scale is rounded to its dtype first.
  bool rounds_embedding_scale = false;
  /// Divides the logits.
  double logits_scale = 1;
  /// x becomes cap * tanh(x / cap): products of queries and keys, and logits; 0: no cap.
  double attention_softcap = 0, logits_softcap = 0;

  /// Layers with the same positions share one of these.
  std::vector<RopeConfig> ropes = {RopeConfig{}};
  /// One for each layer.
  std::vector<DecoderLayerConfig> layers = std::vector<DecoderLayerConfig>(32);

  /// The token whose embedding is not trained: the configuration's pad_token_id.
  std::optional<std::int64_t> padding_idx = {};
  /// For generate(): see GenerationConfig. from_file() reads these from generation_config.json beside the
  /// file if there is one, as in transformers.
  std::optional<std::int64_t> pad_token_id = {}, bos_token_id = 1;
  TokenIds eos_token_id = 2;

  /// How config.json says the positions: "rope_parameters" of transformers 5, or "rope_theta" and
  /// "rope_scaling", which versions 4 and 5 read.
  bool has_rope_parameters = false;
  /// What save_pretrained() keeps of the file; set by from_file().
  std::shared_ptr<const ModelOrigin> origin = {};

  /// The families.
  static std::vector<std::string> model_types();
  /// The defaults of a family's class in transformers. Throws UsageError for an unknown family.
  static DecoderConfig of(const std::string& model_type);
  /// A new model of the family `config.model_type`. Throws UsageError for sizes that do not fit each other.
  static DecoderConfig of(const ModelConfig& config, const ModelSizes& sizes);
  /// Reads config.json, or the one in a folder, in the spelling of transformers 4 or 5. Throws DataError,
  /// which names file and field, if it is of another model, if a field is out of range, and for features that
  /// are not implemented.
  static DecoderConfig from_file(const std::filesystem::path& path);
  /// The text of a config.json of the family's ...ForCausalLM. Throws UsageError for a decoder of your own
  /// form, which the family's file cannot describe.
  std::string to_json() const;
  /// What programs ask of it.
  ModelConfig model_config() const;
};

class DecoderBodyImpl;

/// A decoder with its language-model head, with the parameter names of Hugging Face's LlamaForCausalLM and so
/// on. Its layers are units: of activation checkpointing, fully_shard() and ShardedInit. Phases of positions
/// are computed in float32 in each forward, whatever the model's dtype; they are neither parameters nor
/// buffers.
///
/// Dynamic scaling and longrope depend on the longest position of a batch, as in transformers, where dynamic
/// scaling also remembers earlier, longer batches; here it does not.
class DecoderForCausalLMImpl : public FamilyModel<CausalLMImpl, DecoderConfig> {
 public:
  /// New weights, normal with initializer_range. Throws UsageError if the sizes do not fit each other.
  explicit DecoderForCausalLMImpl(const DecoderConfig& config);
  ~DecoderForCausalLMImpl() override;

  at::Tensor states(const at::Tensor& input_ids, const at::Tensor& attention_mask = {},
                    const at::Tensor& position_ids = {}) override;
  TokenHead head() const override;
  at::Tensor forward_with_cache(const at::Tensor& input_ids, KeyValueCache& cache,
                                const at::Tensor& attention_mask = {}) override;

 private:
  std::shared_ptr<DecoderBodyImpl> model_;
  /// Null if it is the embedding.
  std::shared_ptr<torch::nn::LinearImpl> head_;
};
TORCH_MODULE(DecoderForCausalLM);

/// Reads a folder with config.json and weights; names may begin with "model." or not. *Local*. Throws
/// DataError. For any family: AutoModelForCausalLM.
DecoderForCausalLM load_decoder(const std::filesystem::path& folder, PretrainedReport* report = nullptr);

}  // namespace lockstep::models
