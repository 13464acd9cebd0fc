#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <optional>
#include <vector>

namespace lockstep::models {

/// The ids of some tokens: a number or a list, as in Hugging Face's configurations; empty: none.
struct TokenIds : std::vector<std::int64_t> {
  TokenIds() = default;
  TokenIds(std::int64_t id) : vector{id} {}
  TokenIds(std::initializer_list<std::int64_t> ids) : vector(ids) {}
  bool contains(std::int64_t id) const { return std::find(begin(), end(), id) != end(); }
};

/// When beam search stops for a text: false (the default) when num_beams texts are finished and, at the
/// present length, no running one is better; true as soon as num_beams are finished; never when no running
/// one can become better at any length.
struct EarlyStopping {
  enum class When { no_better_now, when_full, no_better_ever };
  EarlyStopping(bool when_full) : when(when_full ? When::when_full : When::no_better_now) {}
  static EarlyStopping never() { return EarlyStopping(When::no_better_ever); }
  bool operator==(const EarlyStopping&) const = default;

  When when;

 private:
  explicit EarlyStopping(When value) : when(value) {}
};

/// Options of generate(), with the names, defaults and meaning of transformers' GenerationConfig. What has no
/// value comes from the model's folder (see from_pretrained()), and then from the default given here. Lengths
/// are numbers of tokens; padding does not count.
struct GenerationConfig {
  /// Maximum number of tokens to add; counts more than max_length. Default: as max_length says, otherwise 20,
  /// or as many as the model's max_position_embeddings leaves room for.
  std::optional<std::int64_t> max_new_tokens = {};
  /// Maximum length with the prompt, of which an encoder-decoder has one token: the first of its output.
  std::optional<std::int64_t> max_length = {};
  /// No end token before so many new tokens; counts more than min_length.
  std::optional<std::int64_t> min_new_tokens = {};
  /// No end token before this length with the prompt; 0: any.
  std::optional<std::int64_t> min_length = {};

  /// Each of these ends a text; included in the result. Without any, every text has the maximum length.
  TokenIds eos_token_id = {};
  /// Pads texts that ended before others; by default the first end token.
  std::optional<std::int64_t> pad_token_id = {};
  /// The first token of an encoder-decoder's output.
  std::optional<std::int64_t> decoder_start_token_id = {};
  /// The first new token, if the prompt is a single token.
  std::optional<std::int64_t> forced_bos_token_id = {};
  /// The last token of a text that reaches its maximum length.
  std::optional<std::int64_t> forced_eos_token_id = {};

  /// Sample tokens by their probabilities instead of taking the best. Default: false.
  std::optional<bool> do_sample = {};
  /// Divides the logits; above 0. Default: 1. This and the next three are for do_sample.
  std::optional<double> temperature = {};
  /// Sample from this many best tokens; 0: all. Default: 50.
  std::optional<std::int64_t> top_k = {};
  /// Sample from the best tokens that together have this probability. Default: 1.
  std::optional<double> top_p = {};
  /// Sample from tokens that are at least so probable in proportion to the best one; 0 to 1. Default: none.
  std::optional<double> min_p = {};
  /// Seed of the samples: the same seed gives the same texts, independently of other random numbers of the
  /// program. For one text on the CPU they are those of transformers after torch.manual_seed(seed). Never
  /// from a folder.
  std::uint64_t seed = 0;
  /// A seed for each row, in place of `seed`: a row's samples then do not depend on the batch that it is in.
  std::vector<std::uint64_t> row_seeds = {};

  /// Number of beams per row; 1, the default: one text is followed. With do_sample, the continuations of the
  /// beams are drawn.
  std::optional<std::int64_t> num_beams = {};
  /// A finished text's score is the sum of its log-probabilities divided by (number of new
  /// tokens)^length_penalty. Default: 1.
  std::optional<double> length_penalty = {};
  std::optional<EarlyStopping> early_stopping = {};
  /// Texts for each row, one after another in the result: the best of the beams, at most num_beams, or
  /// samples. Default: 1.
  std::optional<std::int64_t> num_return_sequences = {};

  /// Divides the positive logits of tokens that are in the text already, and multiplies negative ones; above
  /// 0. Default: 1.
  std::optional<double> repetition_penalty = {};
  /// No sequence of this many tokens twice in a text; 0, the default: any.
  std::optional<std::int64_t> no_repeat_ngram_size = {};
  /// None of the source text's, or for a causal language model the prompt's, sequences of this many tokens;
  /// 0, the default: any.
  std::optional<std::int64_t> encoder_no_repeat_ngram_size = {};
  /// Sequences of tokens that do not appear; an end token alone is ignored.
  std::optional<std::vector<std::vector<std::int64_t>>> bad_words_ids = {};
  /// Tokens that do not appear, and those that are not the first new token (after a forced one).
  std::optional<std::vector<std::int64_t>> suppress_tokens = {};
  std::optional<std::vector<std::int64_t>> begin_suppress_tokens = {};
  /// Make probabilities sum to 1 again after all of the above, which counts for beams. Default: false.
  std::optional<bool> renormalize_logits = {};

  /// The settings of a model's folder as transformers reads them: those of generation_config.json; without
  /// that file, those that old folders have in config.json. Fields that change no text (use_cache,
  /// output_...) and unknown ones are ignored. *Local*. Throws DataError, naming file and field: for values
  /// of the wrong type or out of range, for numbers that contradict each other, for tokens that are not in
  /// the vocabulary of config.json, and for each setting of transformers that is not implemented and not
  /// neutral.
  static GenerationConfig from_pretrained(const std::filesystem::path& folder);
};

/// The settings with which generate() continues for the model of `folder`: those of `options`, and for the
/// rest those of the folder. *Local*. Throws as from_pretrained(), and UsageError for options that are out of
/// range or contradict each other; a value of the folder that contradicts an option is named with its file.
GenerationConfig generation_settings(const std::filesystem::path& folder, const GenerationConfig& options);

/// The interface of a model to generate(): it takes tokens, keeps those that it has seen, and returns the
/// logits of the next one.
struct TokenModel {
  /// `tokens` [rows, n] are the next ones of each row; returns the logits [rows, vocabulary] of the token
  /// after the last of them.
  std::function<at::Tensor(const at::Tensor& tokens)> next;
  /// Row i continues from the state of row `rows[i]`; `rows` are integers, and their number is the new number
  /// of rows.
  std::function<void(const at::Tensor& rows)> reorder;
};

/// Continues `tokens`, int64 [rows, length], and returns them with the new ones: [rows *
/// num_return_sequences, length + the most tokens added]. Greedy and beam search give the same tokens as
/// transformers' generate for the same logits. Rows that have ended are taken out of the model by `reorder`.
/// *Local*. Throws UsageError for options that are out of range or contradict each other.
at::Tensor generate(const TokenModel& model, const at::Tensor& tokens, const GenerationConfig& config);

}  // namespace lockstep::models
