#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
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

/// Options of generate(), with the names, defaults and meaning of Hugging Face's GenerationConfig.
struct GenerationConfig {
  /// Maximum number of tokens to add.
  std::int64_t max_new_tokens = 20;
  /// Each of these ends a text; included in the result. Without any, every text has max_new_tokens.
  TokenIds eos_token_id = {};
  /// Pads texts that ended before others; by default the first end token.
  std::optional<std::int64_t> pad_token_id = {};
  /// The first new token, if the prompt is a single token.
  std::optional<std::int64_t> forced_bos_token_id = {};
  /// The last token of a text that reaches max_new_tokens.
  std::optional<std::int64_t> forced_eos_token_id = {};

  /// Sample tokens by their probabilities instead of taking the best.
  bool do_sample = false;
  /// Divides the logits; above 0. For do_sample.
  double temperature = 1.0;
  /// Sample from this many best tokens; 0: all. For do_sample.
  std::int64_t top_k = 50;
  /// Sample from the best tokens that together have this probability. For do_sample.
  double top_p = 1.0;
  /// Seed of the samples: the same seed gives the same texts, independently of other random numbers of the
  /// program.
  std::uint64_t seed = 0;

  /// Number of beams per row; 1: greedy search. Not together with do_sample.
  std::int64_t num_beams = 1;
  /// A finished text's score is the sum of its log-probabilities divided by (number of new
  /// tokens)^length_penalty.
  double length_penalty = 1.0;
  /// Stop as soon as num_beams texts are finished; otherwise when no unfinished one can become better.
  bool early_stopping = false;
};

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

/// Continues `tokens`, integers [rows, length], and returns them with the new ones, [rows, length + at most
/// max_new_tokens]. Greedy and beam search give the same tokens as Hugging Face's generate for the same
/// logits; samples differ. *Local*. Throws UsageError if options contradict each other.
at::Tensor generate(const TokenModel& model, const at::Tensor& tokens, const GenerationConfig& config);

}  // namespace lockstep::models
