#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "models/generation_settings.hpp"

namespace lockstep::models {

/// A text in generation.
struct TextSoFar {
  /// The prompt without padding, and the new tokens.
  std::vector<std::int64_t> tokens;
  std::int64_t prompt = 0;
  GenerationSettings::Limits limits = {};
  /// The row of the prompt, and of the source text.
  std::size_t row = 0;

  std::int64_t added() const { return std::ssize(tokens) - prompt; }
};

/// What transformers does to the scores of the next token before one is chosen, in its order and with its
/// arithmetic: processors, and for samples warpers.
class LogitsProcessors {
 public:
  /// `sources` are the texts of encoder_no_repeat_ngram_size, one per row. The settings must outlive it.
  LogitsProcessors(const GenerationSettings& settings, std::vector<std::vector<std::int64_t>> sources);

  /// `scores` [texts, vocabulary] are float32 logits, or for beams log-probabilities, of the tokens after the
  /// texts; returns what becomes of them. May change `scores`.
  at::Tensor operator()(at::Tensor scores, const std::vector<const TextSoFar*>& texts) const;

 private:
  at::Tensor penalized(const at::Tensor& scores, const std::vector<const TextSoFar*>& texts) const;
  /// Tokens that may not follow a text, those outside of the vocabulary included.
  void add_banned(const TextSoFar& text, std::vector<std::int64_t>& banned) const;
  void add_suppressed(const TextSoFar& text, std::vector<std::int64_t>& banned) const;
  /// The only token that may follow a text, if there is one.
  std::optional<std::int64_t> forced(const TextSoFar& text) const;
  at::Tensor warped(at::Tensor scores) const;

  const GenerationConfig& config_;
  std::vector<std::vector<std::int64_t>> sources_;
  bool samples_;
  /// What samples keep at least: for beams, one token that is no end.
  std::int64_t fewest_ = 1;
};

}  // namespace lockstep::models
