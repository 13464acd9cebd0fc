#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "lockstep/models/generation.hpp"

namespace lockstep::models {

/// Calls visit(name, a.field, b.field) for all fields of two GenerationConfigs that a folder can have.
void visit_generation_fields(auto& a, auto& b, const auto& visit) {
  visit("max_new_tokens", a.max_new_tokens, b.max_new_tokens);
  visit("max_length", a.max_length, b.max_length);
  visit("min_new_tokens", a.min_new_tokens, b.min_new_tokens);
  visit("min_length", a.min_length, b.min_length);
  visit("eos_token_id", a.eos_token_id, b.eos_token_id);
  visit("pad_token_id", a.pad_token_id, b.pad_token_id);
  visit("decoder_start_token_id", a.decoder_start_token_id, b.decoder_start_token_id);
  visit("forced_bos_token_id", a.forced_bos_token_id, b.forced_bos_token_id);
  visit("forced_eos_token_id", a.forced_eos_token_id, b.forced_eos_token_id);
  visit("do_sample", a.do_sample, b.do_sample);
  visit("temperature", a.temperature, b.temperature);
  visit("top_k", a.top_k, b.top_k);
  visit("top_p", a.top_p, b.top_p);
  visit("min_p", a.min_p, b.min_p);
  visit("num_beams", a.num_beams, b.num_beams);
  visit("length_penalty", a.length_penalty, b.length_penalty);
  visit("early_stopping", a.early_stopping, b.early_stopping);
  visit("num_return_sequences", a.num_return_sequences, b.num_return_sequences);
  visit("repetition_penalty", a.repetition_penalty, b.repetition_penalty);
  visit("no_repeat_ngram_size", a.no_repeat_ngram_size, b.no_repeat_ngram_size);
  visit("encoder_no_repeat_ngram_size", a.encoder_no_repeat_ngram_size, b.encoder_no_repeat_ngram_size);
  visit("bad_words_ids", a.bad_words_ids, b.bad_words_ids);
  visit("suppress_tokens", a.suppress_tokens, b.suppress_tokens);
  visit("begin_suppress_tokens", a.begin_suppress_tokens, b.begin_suppress_tokens);
  visit("renormalize_logits", a.renormalize_logits, b.renormalize_logits);
}

/// What generate() follows: options, completed by those of a file.
class GenerationSettings {
 public:
  /// `file` names that of `defaults` in messages; empty: there are none. Throws UsageError for options, and
  /// DataError for values of the file, that are out of range or contradict each other.
  GenerationSettings(GenerationConfig options, const GenerationConfig& defaults, std::string file);

  /// Fields without a value have their default.
  const GenerationConfig& config() const noexcept { return config_; }
  bool samples() const { return config_.do_sample.value_or(false); }
  std::int64_t beams() const { return config_.num_beams.value_or(1); }
  std::int64_t texts_per_row() const { return config_.num_return_sequences.value_or(1); }
  std::int64_t padding() const;

  /// How many tokens may and must follow a prompt of `length` tokens; `longest` is the model's longest text,
  /// or 0. For an encoder-decoder, whose prompts are all alike, a contradiction of the two is an error.
  struct Limits {
    std::int64_t most, least;
  };
  Limits limits(std::int64_t length, std::int64_t longest, bool is_encoder_decoder) const;

  /// Throws unless the tokens that a model of `size` tokens is to choose or avoid are among these.
  void check_vocabulary(std::int64_t size) const;

 private:
  void check() const;
  void check_numbers() const;
  void check_tokens() const;
  bool is_from_file(const std::string& field) const { return from_file_.contains(field); }
  bool have_one_source(const std::string& a, const std::string& b) const;
  /// A field's name and value, and its file, for messages about another field.
  std::string named(const std::string& field, std::int64_t value) const;
  [[noreturn]] void fail(const std::string& field, const std::string& value,
                         const std::string& expected) const;
  void require(bool holds, const std::string& field, auto value, const std::string& expected) const;

  GenerationConfig config_;
  std::set<std::string> from_file_;
  std::string file_;
};

/// The settings of generate() in a JSON object of `file`; other fields are ignored. Throws DataError for
/// values of the wrong type, and for settings that are not implemented and not neutral.
GenerationConfig read_generation(const nlohmann::ordered_json& fields, const std::string& file);

/// The number of tokens that a model with this config.json gives logits for; 0 if it does not say.
std::int64_t target_vocabulary(const nlohmann::ordered_json& config);

}  // namespace lockstep::models
