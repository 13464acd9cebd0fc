#include "models/logits_processors.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

namespace lockstep::models {
namespace {

using Tokens = std::vector<std::int64_t>;

/// Adds each token that follows in `text` on the last `size` - 1 tokens of `now`.
void add_followers(const Tokens& text, const Tokens& now, std::int64_t size, Tokens& found) {
  if (size < 1 || std::ssize(text) < size || std::ssize(now) + 1 < size) return;
  const auto before = std::span(now).last(static_cast<std::size_t>(size - 1));
  for (std::size_t i = 0; i + before.size() < text.size(); ++i) {
    const auto window = std::span(text).subspan(i, before.size());
    if (std::equal(window.begin(), window.end(), before.begin())) found.push_back(text[i + before.size()]);
  }
}

/// Adds the positions of tokens in row `row` of flat scores; others are not in the vocabulary.
void add_positions(std::int64_t row, std::int64_t vocabulary, const Tokens& tokens, Tokens& positions) {
  for (const auto token : tokens) {
    if (token >= 0 && token < vocabulary) positions.push_back(row * vocabulary + token);
  }
}

constexpr float kImpossible = -std::numeric_limits<float>::infinity();

void forbid(at::Tensor& scores, const Tokens& positions) {
  if (positions.empty()) return;
  scores.view(-1).index_fill_(0, at::tensor(positions, at::kLong).to(scores.device()), kImpossible);
}

at::Tensor among_top_k(const at::Tensor& scores, std::int64_t top_k) {
  const auto least = std::get<0>(scores.topk(std::min(top_k, scores.size(-1)))).slice(-1, -1);
  return scores.masked_fill(scores < least, kImpossible);
}

/// Masks the tokens outside the top_p probability mass.
at::Tensor within_top_p(const at::Tensor& scores, double top_p, std::int64_t fewest) {
  const auto [sorted, order] = scores.sort(-1);
  at::Tensor out = sorted.softmax(-1).cumsum(-1) <= 1 - top_p;
  out.slice(-1, -fewest).fill_(false);
  return scores.masked_fill(out.scatter(-1, order, out), kImpossible);
}

at::Tensor above_min_p(const at::Tensor& scores, double min_p, std::int64_t fewest) {
  const at::Tensor probabilities = scores.softmax(-1);
  at::Tensor out = probabilities < min_p * probabilities.amax(-1, /*keepdim=*/true);
  const auto kept = std::get<1>(probabilities.topk(std::min(fewest, scores.size(-1))));
  out.scatter_(-1, kept, false);
  return scores.masked_fill(out, kImpossible);
}

}  // namespace

LogitsProcessors::LogitsProcessors(const GenerationSettings& settings, std::vector<Tokens> sources)
    : config_(settings.config()), sources_(std::move(sources)), samples_(settings.samples()) {
  if (settings.beams() > 1) fewest_ = std::max<std::int64_t>(1, std::ssize(config_.eos_token_id)) + 1;
}

at::Tensor LogitsProcessors::operator()(at::Tensor scores, const std::vector<const TextSoFar*>& texts) const {
  const std::int64_t vocabulary = scores.size(-1);
  scores = scores.contiguous();
  if (config_.repetition_penalty.value_or(1) != 1) scores = penalized(scores, texts);
  Tokens banned, positions, suppressed;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    banned.clear();
    add_banned(*texts[i], banned);
    add_positions(row, vocabulary, banned, positions);
    banned.clear();
    add_suppressed(*texts[i], banned);
    add_positions(row, vocabulary, banned, suppressed);
  }
  forbid(scores, positions);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto only = forced(*texts[i]);
    if (!only) continue;
    auto row = scores[static_cast<std::int64_t>(i)];
    row.fill_(kImpossible);
    row[*only] = 0;
  }
  forbid(scores, suppressed);
  if (samples_) scores = warped(scores);
  return config_.renormalize_logits.value_or(false) ? scores.log_softmax(-1) : scores;
}

at::Tensor LogitsProcessors::penalized(const at::Tensor& scores,
                                       const std::vector<const TextSoFar*>& texts) const {
  Tokens positions;
  for (std::size_t i = 0; i < texts.size(); ++i)
    add_positions(static_cast<std::int64_t>(i), scores.size(-1), texts[i]->tokens, positions);
  const at::Tensor index = at::tensor(positions, at::kLong).to(scores.device());
  const at::Tensor seen = scores.view(-1).index_select(0, index);
  const double penalty = *config_.repetition_penalty;
  const at::Tensor now = at::where(seen < 0, seen * penalty, seen / penalty);
  return scores.view(-1).scatter(0, index, now).view(scores.sizes());
}

void LogitsProcessors::add_banned(const TextSoFar& text, Tokens& banned) const {
  const auto& now = text.tokens;
  add_followers(now, now, config_.no_repeat_ngram_size.value_or(0), banned);
  if (const auto size = config_.encoder_no_repeat_ngram_size.value_or(0); size > 0)
    add_followers(sources_.at(text.row), now, size, banned);
  if (config_.bad_words_ids) {
    for (const auto& word : *config_.bad_words_ids) {
      const bool is_end = word.size() == 1 && config_.eos_token_id.contains(word.front());
      if (is_end || word.size() - 1 > now.size()) continue;
      const auto before = std::span(now).last(word.size() - 1);
      if (std::equal(before.begin(), before.end(), word.begin())) banned.push_back(word.back());
    }
  }
  if (text.added() < text.limits.least)
    banned.insert(banned.end(), config_.eos_token_id.begin(), config_.eos_token_id.end());
}

void LogitsProcessors::add_suppressed(const TextSoFar& text, Tokens& banned) const {
  if (const auto& all = config_.suppress_tokens) banned.insert(banned.end(), all->begin(), all->end());
  if (!config_.begin_suppress_tokens) return;
  const bool has_forced = text.prompt == 1 && config_.forced_bos_token_id;
  if (text.added() != (has_forced ? 1 : 0)) return;
  banned.insert(banned.end(), config_.begin_suppress_tokens->begin(), config_.begin_suppress_tokens->end());
}

std::optional<std::int64_t> LogitsProcessors::forced(const TextSoFar& text) const {
  if (config_.forced_eos_token_id && text.added() == text.limits.most - 1) return config_.forced_eos_token_id;
  return text.tokens.size() == 1 ? config_.forced_bos_token_id : std::nullopt;
}

at::Tensor LogitsProcessors::warped(at::Tensor scores) const {
  constexpr std::int64_t kDefaultTopK = 50;
  if (const double temperature = config_.temperature.value_or(1); temperature != 1)
    scores = scores / temperature;
  if (const auto top_k = config_.top_k.value_or(kDefaultTopK); top_k != 0)
    scores = among_top_k(scores, std::max(top_k, fewest_));
  if (const double top_p = config_.top_p.value_or(1); top_p < 1)
    scores = within_top_p(scores, top_p, fewest_);
  if (config_.min_p) scores = above_min_p(scores, *config_.min_p, fewest_);
  return scores;
}

}  // namespace lockstep::models
