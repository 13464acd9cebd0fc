#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace lockstep::models {

/// How generate() chooses tokens, with the names, defaults and meaning of Hugging Face's GenerationConfig.
struct GenerationConfig {
  /// Tokens to add at most.
  std::int64_t max_new_tokens = 20;
  /// Ends a text; it is part of the result. Without one every text has max_new_tokens.
  std::optional<std::int64_t> eos_token_id = {};
  /// Fills up texts that ended before others; the end token where it is not given.
  std::optional<std::int64_t> pad_token_id = {};

  /// Draw tokens by their probabilities instead of taking the best.
  bool do_sample = false;
  /// Divides the logits; above 0. For do_sample.
  double temperature = 1.0;
  /// Draw among this many best tokens; 0: all. For do_sample.
  std::int64_t top_k = 50;
  /// Draw among the best tokens that together have this probability. For do_sample.
  double top_p = 1.0;
  /// Drives the draws: the same seed gives the same texts, whatever other random numbers the program draws.
  std::uint64_t seed = 0;

  /// Texts followed at once for each row; 1: none but the best. Not together with do_sample.
  std::int64_t num_beams = 1;
  /// A finished text's score is the sum of its log-probabilities divided by its new tokens to this power.
  double length_penalty = 1.0;
  /// End as soon as num_beams texts are finished; else when no unfinished one can get better.
  bool early_stopping = false;
};

/// A model as generate() sees it: something that takes tokens, keeps what it has seen, and says what comes
/// next.
struct TokenModel {
  /// `tokens` are [rows, n], the next ones of each row; returns logits [rows, vocabulary] for the token after
  /// the last of them.
  std::function<at::Tensor(const at::Tensor& tokens)> next;
  /// Row i goes on from what the row `rows[i]` has seen; `rows` are integers, as many as rows shall be.
  std::function<void(const at::Tensor& rows)> reorder;
};

/// Goes on from `tokens`, integers [rows, length], and returns them with the new ones, [rows, length + at
/// most max_new_tokens]. The same tokens as Hugging Face's generate for the same logits, greedy and by beams.
/// Draws are its own. *Local*. Throws UsageError for settings that contradict each other.
at::Tensor generate(const TokenModel& model, const at::Tensor& tokens, const GenerationConfig& config);

}  // namespace lockstep::models
