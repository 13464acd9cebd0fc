#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/models/generation.hpp"
#include "lockstep/models/pretrained.hpp"
#include "lockstep/models/token_losses.hpp"

namespace lockstep::models {

/// What programs ask of a model's configuration, whatever its family; see AutoConfig. The families' own
/// configurations (BertConfig, ...) have all fields.
struct ModelConfig {
  /// Hugging Face's name of the family: "bert", "gpt2", "m2m_100".
  std::string model_type = {};
  /// Number of tokens that the model reads; its tokenizer may have fewer.
  std::int64_t vocab_size = 0;
  /// The longest text in tokens for which the model was made.
  std::int64_t max_position_embeddings = 0;

  /// Tokens of generate(); see GenerationConfig.
  std::optional<std::int64_t> pad_token_id = {};
  std::optional<std::int64_t> bos_token_id = {};
  TokenIds eos_token_id = {};
  /// The first token of a decoder's input; without one, bos_token_id.
  std::optional<std::int64_t> decoder_start_token_id = {};
  std::optional<std::int64_t> forced_bos_token_id = {};
  std::optional<std::int64_t> forced_eos_token_id = {};

  /// The classes of a classifier: see EncoderConfig.
  std::int64_t num_labels = 2;
  std::vector<std::string> id2label = {};
  std::string problem_type = {};
};

struct KeyValueCache;
struct ModelOrigin;
struct ModelSizes;

/// A model that has a folder in Hugging Face's form: its weights and its configuration. The base of the
/// tasks below, by which programs use a model of any family; AutoModel and its kin create them.
class PreTrainedModelImpl : public torch::nn::Module {
 public:
  virtual ModelConfig model_config() const = 0;
  /// The text of config.json. If the model came from a folder, that of its file with the fields that changed
  /// since: fields that Lockstep does not know are kept.
  virtual std::string config_json() const = 0;
  /// What save_pretrained() keeps of the folder that the model came from; null for a new model.
  virtual std::shared_ptr<const ModelOrigin> origin() const = 0;
  /// Old names in the file that the model came from; save_pretrained() writes them again, as transformers
  /// does.
  const std::vector<PretrainedRename>& renames() const noexcept { return renames_; }
  void set_renames(std::vector<PretrainedRename> renames) { renames_ = std::move(renames); }

 private:
  std::vector<PretrainedRename> renames_;
};

/// Writes `folder`/model.safetensors and config.json, for AutoModel and for Hugging Face's from_pretrained. A
/// model that came from a folder keeps what that has besides weights and tokenizer: all fields of config.json
/// ("torch_dtype" becomes that of the weights), generation_config.json, and the settings of
/// sentence-transformers and of preprocessors. Each file appears complete or not at all; config.json is
/// written last. Of a model with an adapter, save_adapter() writes that alone. *Local*. Throws Error if
/// writing fails.
void save_pretrained(PreTrainedModelImpl& model, const std::filesystem::path& folder);
template <std::derived_from<PreTrainedModelImpl> Model>
void save_pretrained(const torch::nn::ModuleHolder<Model>& model, const std::filesystem::path& folder) {
  save_pretrained(static_cast<PreTrainedModelImpl&>(*model.ptr()), folder);
}

/// Predicts each next token of a text.
class CausalLMImpl : public PreTrainedModelImpl {
 public:
  /// Logits [rows, tokens, vocab_size] for `input_ids`, integers [rows, tokens]. `attention_mask` [rows,
  /// tokens] is 0 for padding; padding at the end needs no mask, because no token attends to later ones.
  /// `position_ids`, integers of the same shape, is each token's position in its text; by default 0, 1, 2,
  /// .... Without an attention_mask, a position that is not the previous one plus 1 starts another text,
  /// whose tokens do not attend to other texts: see flatten_collate(). Throws UsageError for other shapes or
  /// too many tokens.
  at::Tensor forward(const at::Tensor& input_ids, const at::Tensor& attention_mask = {},
                     const at::Tensor& position_ids = {});

  /// The losses of `labels`, integers [rows, tokens]: the input ids, or kNoLabel for tokens that do not
  /// count. Each is predicted by the tokens before it, so the first one of a row never counts. Without whole
  /// logits of large vocabularies: see lockstep::models::token_losses(). DDP and FSDP wrap a TokenLossModel
  /// for it.
  TokenLosses token_losses(const at::Tensor& labels, const TokenLossOptions& options,
                           const at::Tensor& input_ids, const at::Tensor& attention_mask = {},
                           const at::Tensor& position_ids = {});

  /// The states [rows, tokens, width] of which head() makes the logits. Inputs as for forward().
  virtual at::Tensor states(const at::Tensor& input_ids, const at::Tensor& attention_mask = {},
                            const at::Tensor& position_ids = {}) = 0;
  virtual TokenHead head() const = 0;

  /// The logits [rows, vocab_size] of the token after `input_ids`, which follow the tokens in `cache` and are
  /// added to it. After the first call, one token of each row at a time. `attention_mask` [rows, tokens in
  /// the cache and new ones] is 0 for padding, which must be in front; a token's position is the number of
  /// its text's tokens before it.
  virtual at::Tensor forward_with_cache(const at::Tensor& input_ids, KeyValueCache& cache,
                                        const at::Tensor& attention_mask = {}) = 0;
};
TORCH_MODULE(CausalLM);

/// Gives each text, or pair of texts, scores for its classes.
class SequenceClassifierImpl : public PreTrainedModelImpl {
 public:
  /// Logits [rows, num_labels]. `input_ids` are integers [rows, tokens]; `attention_mask` is 1 for tokens and
  /// 0 for padding (undefined: no padding); `token_type_ids` is 1 for the second text of a pair (undefined:
  /// all 0).
  virtual at::Tensor forward(const at::Tensor& input_ids, const at::Tensor& attention_mask = {},
                             const at::Tensor& token_type_ids = {}) = 0;

  /// Sets the names of the classes by number, for save_pretrained. *Local*. Throws UsageError unless there
  /// are num_labels names.
  virtual void set_id2label(std::vector<std::string> names) = 0;
};
TORCH_MODULE(SequenceClassifier);

/// Gives each token of a text scores for its classes: names in texts, parts of speech.
class TokenClassifierImpl : public PreTrainedModelImpl {
 public:
  /// Logits [rows, tokens, num_labels]. Inputs as for SequenceClassifier and CausalLM.
  virtual at::Tensor forward(const at::Tensor& input_ids, const at::Tensor& attention_mask = {},
                             const at::Tensor& token_type_ids = {}, const at::Tensor& position_ids = {}) = 0;

  /// As of SequenceClassifier.
  virtual void set_id2label(std::vector<std::string> names) = 0;
};
TORCH_MODULE(TokenClassifier);

/// Predicts tokens that are masked from those around them.
class MaskedLMImpl : public PreTrainedModelImpl {
 public:
  /// Logits [rows, tokens, vocab_size] of each token itself. Inputs as for SequenceClassifier and CausalLM.
  at::Tensor forward(const at::Tensor& input_ids, const at::Tensor& attention_mask = {},
                     const at::Tensor& token_type_ids = {}, const at::Tensor& position_ids = {});

  /// The losses of `labels`, integers [rows, tokens]: the tokens that were masked, and kNoLabel elsewhere.
  /// Without whole logits of large vocabularies: see lockstep::models::token_losses(). DDP and FSDP wrap a
  /// TokenLossModel for it.
  TokenLosses token_losses(const at::Tensor& labels, const TokenLossOptions& options,
                           const at::Tensor& input_ids, const at::Tensor& attention_mask = {},
                           const at::Tensor& token_type_ids = {}, const at::Tensor& position_ids = {});

  /// The states [rows, tokens, width] of which head() makes the logits. Inputs as for forward().
  virtual at::Tensor states(const at::Tensor& input_ids, const at::Tensor& attention_mask = {},
                            const at::Tensor& token_type_ids = {}, const at::Tensor& position_ids = {}) = 0;
  virtual TokenHead head() const = 0;
};
TORCH_MODULE(MaskedLM);

/// Writes a text from another one: translations, summaries.
class Seq2SeqLMImpl : public PreTrainedModelImpl {
 public:
  /// Logits [rows, target tokens, vocabulary]. `input_ids` [rows, source tokens] with `attention_mask` (1 for
  /// tokens, 0 for padding; undefined: no padding); `decoder_input_ids` [rows, target tokens]: see
  /// decoder_inputs().
  at::Tensor forward(const at::Tensor& input_ids, const at::Tensor& attention_mask,
                     const at::Tensor& decoder_input_ids);

  /// The losses of `labels`, integers [rows, target tokens], where kNoLabel stands for padding, of the target
  /// text that `decoder_input_ids` begins; undefined: decoder_inputs(labels). Without whole logits of large
  /// vocabularies: see lockstep::models::token_losses(). DDP and FSDP wrap a TokenLossModel for it.
  TokenLosses token_losses(const at::Tensor& labels, const TokenLossOptions& options,
                           const at::Tensor& input_ids, const at::Tensor& attention_mask = {},
                           const at::Tensor& decoder_input_ids = {});

  /// The states [rows, target tokens, width] of which head() makes the logits. Inputs as for forward().
  virtual at::Tensor states(const at::Tensor& input_ids, const at::Tensor& attention_mask,
                            const at::Tensor& decoder_input_ids) = 0;
  virtual TokenHead head() const = 0;

  /// The decoder's input in training for these labels [rows, tokens], where -100 stands for padding: shifted
  /// right by one, behind the family's first token.
  virtual at::Tensor decoder_inputs(const at::Tensor& labels) const = 0;
  /// The decoder after it has seen these source texts, for generate(). The model must outlive it.
  virtual TokenModel decoder_of(const at::Tensor& input_ids, const at::Tensor& attention_mask) = 0;

  /// Sets how generate() begins texts, for the language of a translation, and with it what save_pretrained()
  /// writes: see ModelConfig. *Local*.
  virtual void set_first_tokens(std::optional<std::int64_t> decoder_start_token_id,
                                std::optional<std::int64_t> forced_bos_token_id) = 0;
};
TORCH_MODULE(Seq2SeqLM);

/// The output of a TextEncoder.
struct TextEncoderOutput {
  /// [rows, tokens, width]
  at::Tensor last_hidden_state;
  /// [rows, width]; undefined for a model without a pooling layer.
  at::Tensor pooler_output;
};
/// Used by DistributedDataParallel.
void visit_tensors_of(TextEncoderOutput& output, const auto& visit) {
  visit(output.last_hidden_state);
  if (output.pooler_output.defined()) visit(output.pooler_output);
}

/// Turns texts into vectors.
class TextEncoderImpl : public PreTrainedModelImpl {
 public:
  /// Inputs as for SequenceClassifier and CausalLM.
  virtual TextEncoderOutput forward(const at::Tensor& input_ids, const at::Tensor& attention_mask = {},
                                    const at::Tensor& token_type_ids = {},
                                    const at::Tensor& position_ids = {}) = 0;
};
TORCH_MODULE(TextEncoder);

/// The base of a family's model for the task `Task`, whose configuration is a `Config`.
template <std::derived_from<PreTrainedModelImpl> Task, class Config>
class FamilyModel : public Task {
 public:
  const Config& config() const noexcept { return config_; }
  ModelConfig model_config() const override { return config_.model_config(); }
  std::string config_json() const override { return config_.to_json(); }
  std::shared_ptr<const ModelOrigin> origin() const override { return config_.origin; }

 protected:
  explicit FamilyModel(Config config) : config_(std::move(config)) {}

  Config config_;
};

/// Continues `input_ids`, int64 [rows, tokens]: see GenerationConfig. Rows of different lengths are padded in
/// front, with 0 in `attention_mask` (undefined: no padding): each row's text is then the one that it has
/// alone. No gradients; the model should be in evaluation mode. What the options leave open is as in the
/// folder that the model came from; the tokens of a new model are those of its configuration. *Local*. Throws
/// UsageError for padding at the end, for options that are out of range or contradict each other, and for
/// texts that are longer than the model takes; DataError for such values of the folder.
at::Tensor generate(CausalLMImpl& model, const at::Tensor& input_ids, const at::Tensor& attention_mask,
                    GenerationConfig config);
template <std::derived_from<CausalLMImpl> Model>
at::Tensor generate(const torch::nn::ModuleHolder<Model>& model, const at::Tensor& input_ids,
                    const at::Tensor& attention_mask, GenerationConfig config) {
  return generate(static_cast<CausalLMImpl&>(*model.ptr()), input_ids, attention_mask, std::move(config));
}
template <std::derived_from<CausalLMImpl> Model>
at::Tensor generate(const torch::nn::ModuleHolder<Model>& model, const at::Tensor& input_ids,
                    GenerationConfig config = {}) {
  return generate(static_cast<CausalLMImpl&>(*model.ptr()), input_ids, at::Tensor(), std::move(config));
}

/// Generates target texts for source texts, int64 [rows, tokens] with 0 in `attention_mask` for padding at
/// the end: int64 [rows * num_return_sequences, 1 + the most tokens added], starting with
/// decoder_start_token_id. Otherwise as for a CausalLM.
at::Tensor generate(Seq2SeqLMImpl& model, const at::Tensor& input_ids, const at::Tensor& attention_mask,
                    GenerationConfig config);
template <std::derived_from<Seq2SeqLMImpl> Model>
at::Tensor generate(const torch::nn::ModuleHolder<Model>& model, const at::Tensor& input_ids,
                    const at::Tensor& attention_mask = {}, GenerationConfig config = {}) {
  return generate(static_cast<Seq2SeqLMImpl&>(*model.ptr()), input_ids, attention_mask, std::move(config));
}

/// A decoder's input for these labels [rows, tokens]: shifted right by one, behind the token `first`; -100
/// becomes `padding`.
at::Tensor shift_right(const at::Tensor& labels, std::int64_t first, std::int64_t padding);

/// The mean cross entropy of each token given those before it. `labels` [rows, tokens] are the input ids, or
/// -100 for ignored tokens. A scalar.
at::Tensor causal_lm_loss(const at::Tensor& logits, const at::Tensor& labels);

/// The mean cross entropy of logits [rows, tokens, vocabulary] and labels [rows, tokens]; -100 is ignored.
at::Tensor sequence_loss(const at::Tensor& logits, const at::Tensor& labels);

}  // namespace lockstep::models
