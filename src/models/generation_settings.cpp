#include "models/generation_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/core/error.hpp"

namespace lockstep::models {
namespace {

/// New tokens of a text for which no length is given, as in transformers.
constexpr std::int64_t kDefaultNewTokens = 20;

bool is_set(const TokenIds& ids) { return !ids.empty(); }
template <class Value>
bool is_set(const std::optional<Value>& value) {
  return value.has_value();
}

}  // namespace

GenerationSettings::GenerationSettings(GenerationConfig options, const GenerationConfig& defaults,
                                       std::string file)
    : config_(std::move(options)), file_(std::move(file)) {
  visit_generation_fields(config_, defaults, [&](const char* field, auto& own, const auto& other) {
    if (is_set(own) || !is_set(other)) return;
    own = other;
    from_file_.insert(field);
  });
  check();
}

std::int64_t GenerationSettings::padding() const {
  return config_.pad_token_id.value_or(config_.eos_token_id.empty() ? 0 : config_.eos_token_id.front());
}

void GenerationSettings::fail(const std::string& field, const std::string& value,
                              const std::string& expected) const {
  if (is_from_file(field))
    throw DataError(fmt::format("{}: the field '{}' is {}, expected {}", file_, field, value, expected));
  throw UsageError(fmt::format("generate: {} is {}, expected {}", field, value, expected));
}

void GenerationSettings::require(bool holds, const std::string& field, auto value,
                                 const std::string& expected) const {
  if (!holds) fail(field, fmt::format("{}", value), expected);
}

std::string GenerationSettings::named(const std::string& field, std::int64_t value) const {
  return fmt::format("'{}', which is {}{}", field, value, is_from_file(field) ? " in " + file_ : "");
}

bool GenerationSettings::have_one_source(const std::string& a, const std::string& b) const {
  return is_from_file(a) == is_from_file(b);
}

void GenerationSettings::check() const {
  check_numbers();
  check_tokens();
  const std::int64_t returned = texts_per_row();
  if (beams() == 1 && !samples()) {
    require(returned == 1, "num_return_sequences", returned,
            "1: there is one best text for a row without beams (num_beams) or samples (do_sample)");
  } else if (beams() > 1) {
    require(returned <= beams(), "num_return_sequences", returned, "at most " + named("num_beams", beams()));
  }
  // An option outweighs a file: the maximum then counts, as in transformers.
  const auto& c = config_;
  if (c.min_new_tokens && c.max_new_tokens && have_one_source("min_new_tokens", "max_new_tokens")) {
    require(*c.min_new_tokens <= *c.max_new_tokens, "min_new_tokens", *c.min_new_tokens,
            "at most " + named("max_new_tokens", *c.max_new_tokens));
  }
  if (c.min_length && c.max_length && have_one_source("min_length", "max_length")) {
    require(*c.min_length <= *c.max_length, "min_length", *c.min_length,
            "at most " + named("max_length", *c.max_length));
  }
}

void GenerationSettings::check_numbers() const {
  const auto at_least = [&](const char* field, const std::optional<std::int64_t>& value, std::int64_t least) {
    if (value) require(*value >= least, field, *value, fmt::format("at least {}", least));
  };
  const auto& c = config_;
  at_least("max_new_tokens", c.max_new_tokens, 1);
  at_least("max_length", c.max_length, 1);
  at_least("min_new_tokens", c.min_new_tokens, 0);
  at_least("min_length", c.min_length, 0);
  at_least("num_beams", c.num_beams, 1);
  at_least("num_return_sequences", c.num_return_sequences, 1);
  at_least("no_repeat_ngram_size", c.no_repeat_ngram_size, 0);
  at_least("encoder_no_repeat_ngram_size", c.encoder_no_repeat_ngram_size, 0);
  at_least("top_k", c.top_k, 0);
  const double temperature = c.temperature.value_or(1);
  // Files of models that do not sample may have 0.
  if (samples() || !is_from_file("temperature")) {
    require(temperature > 0 && std::isfinite(temperature), "temperature", temperature,
            "more than 0; for the most probable tokens, do_sample false");
  }
  const double top_p = c.top_p.value_or(1);
  require(top_p > 0 && top_p <= 1, "top_p", top_p, "more than 0 and at most 1");
  const double min_p = c.min_p.value_or(0);
  require(min_p >= 0 && min_p <= 1, "min_p", min_p, "a number from 0 to 1");
  const double repetition = c.repetition_penalty.value_or(1);
  require(repetition > 0 && std::isfinite(repetition), "repetition_penalty", repetition, "more than 0");
  const double length = c.length_penalty.value_or(1);
  require(std::isfinite(length), "length_penalty", length, "a finite number");
}

void GenerationSettings::check_tokens() const {
  const auto& c = config_;
  const auto not_negative = [&](const char* field, const std::optional<std::int64_t>& token) {
    if (token) require(*token >= 0, field, *token, "the number of a token");
  };
  not_negative("pad_token_id", c.pad_token_id);
  not_negative("decoder_start_token_id", c.decoder_start_token_id);
  not_negative("forced_bos_token_id", c.forced_bos_token_id);
  not_negative("forced_eos_token_id", c.forced_eos_token_id);
  if (c.bad_words_ids) {
    require(!c.bad_words_ids->empty(), "bad_words_ids", "[]",
            "a list of lists of tokens, none of them empty");
    for (const auto& word : *c.bad_words_ids) {
      const bool is_word = !word.empty() && *std::min_element(word.begin(), word.end()) >= 0;
      require(is_word, "bad_words_ids", fmt::format("[... [{}] ...]", fmt::join(word, ", ")),
              "a list of lists of tokens, none of them empty");
    }
  }
  if (!c.suppress_tokens) return;
  const auto not_suppressed = [&](const char* field, const std::optional<std::int64_t>& token) {
    const auto& all = *c.suppress_tokens;
    require(!token || std::find(all.begin(), all.end(), *token) == all.end(), field, token.value_or(0),
            "a token that 'suppress_tokens' does not forbid");
  };
  not_suppressed("forced_bos_token_id", c.forced_bos_token_id);
  not_suppressed("forced_eos_token_id", c.forced_eos_token_id);
}

GenerationSettings::Limits GenerationSettings::limits(std::int64_t length, std::int64_t longest,
                                                      bool is_encoder_decoder) const {
  const auto& c = config_;
  Limits limits{.most = kDefaultNewTokens, .least = 0};
  std::string most = "max_new_tokens", least = "min_new_tokens";
  if (c.max_new_tokens) {
    limits.most = *c.max_new_tokens;
  } else if (c.max_length) {
    most = "max_length";
    limits.most = *c.max_length - length;
    require(limits.most > 0, most, *c.max_length,
            fmt::format("more than {}, the tokens of a prompt; max_new_tokens does not count these", length));
  } else if (longest > 0) {
    if (length >= longest) {
      throw UsageError(
          fmt::format("generate: a prompt has {} tokens, and the model takes {} (max_position_embeddings): "
                      "expected a shorter prompt, or max_new_tokens",
                      length, longest));
    }
    limits.most = std::min(limits.most, longest - length);
  }
  if (c.min_new_tokens) {
    limits.least = *c.min_new_tokens;
  } else if (c.min_length) {
    least = "min_length";
    limits.least = std::max<std::int64_t>(0, *c.min_length - length);
  }
  const bool is_contradiction =
      limits.least > limits.most && (is_encoder_decoder || least == "min_new_tokens");
  const bool has_most = c.max_new_tokens || c.max_length;
  if (is_contradiction && (!has_most || have_one_source(least, most))) {
    fail(least, fmt::format("{}", least == "min_length" ? *c.min_length : *c.min_new_tokens),
         fmt::format("so many that at most {} new tokens ('{}') suffice", limits.most, most));
  }
  return limits;
}

void GenerationSettings::check_vocabulary(std::int64_t size) const {
  const auto& c = config_;
  for (const auto& [field, token] : {std::pair("forced_bos_token_id", c.forced_bos_token_id),
                                     std::pair("forced_eos_token_id", c.forced_eos_token_id)}) {
    if (!token || *token < size) continue;
    if (!is_from_file(field)) {
      throw UsageError(
          fmt::format("generate: forced token {} is out of range: the model has {} tokens", *token, size));
    }
    fail(field, fmt::format("{}", *token), fmt::format("one of the model's {} tokens", size));
  }
  if (!c.bad_words_ids) return;
  for (const auto& word : *c.bad_words_ids) {
    require(*std::max_element(word.begin(), word.end()) < size, "bad_words_ids",
            fmt::format("[... [{}] ...]", fmt::join(word, ", ")),
            fmt::format("lists of the model's {} tokens", size));
  }
}

}  // namespace lockstep::models
