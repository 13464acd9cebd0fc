#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tokenizers/pretrained/class_fields.hpp"
#include "tokenizers/pretrained/given_token.hpp"

namespace lockstep::tokenizer {

/// The id of a token; throws DataError if there is none.
using IdOf = std::function<std::int64_t(const std::string& token)>;

/// What a tokenizer class of transformers sets, whatever the tokenizer.json of its folder says. Values are
/// written as in a tokenizer.json.
struct ClassRecipe {
  /// "BPE", "Unigram" or "WordPiece": what the class makes of a vocabulary.
  std::string model;
  /// The model's fields besides "type", "vocab" and "merges".
  nlohmann::json model_fields = nlohmann::json::object();
  nlohmann::json normalizer = nullptr;
  nlohmann::json pre_tokenizer = nullptr;
  nlohmann::json decoder = nullptr;
  /// The post-processor, if the class does not leave that to the file; for a language, if it has any.
  std::function<nlohmann::json(const IdOf& id, const std::string& language)> post_processor = {};
  /// The file's post-processor is preferred to it.
  bool file_post_processor_first = false;
  /// The language of texts and the special tokens of languages, if it has any.
  std::string default_language = {};
  /// Special tokens besides the named ones, unless the files give others.
  std::vector<GivenToken> extra_tokens = {};
  /// Also if the files say that there are none.
  bool extra_if_null = false;
  /// The class sets "bos_token" and "eos_token" around texts itself, whatever the file's post-processor.
  bool sets_bos_and_eos = false;
  bool add_bos = false;
  /// The class adds its special tokens a second time, as special ones.
  bool adds_again = false;
  bool pads_left = false;
  std::vector<std::string> inputs = {"input_ids", "attention_mask"};
};

/// The recipe of a class, with its special tokens set in `fields`; nothing for a class that has none. The
/// file's fields "normalizer" and "model" may be null. Throws DataError for a field that is not what the
/// class takes.
std::optional<ClassRecipe> recipe_of(const std::string& class_name, ClassFields& fields,
                                     const nlohmann::json& file_normalizer, const nlohmann::json& model);

/// The classes that have recipes, for errors.
std::string recipe_names();

/// A piece of a template: a token, or "$A" or "$B" for a text, and its type.
struct TemplatePiece {
  std::string text;
  int type = 0;
};
nlohmann::json template_processing(const std::vector<TemplatePiece>& single,
                                   const std::vector<TemplatePiece>& pair, const IdOf& id);

/// The template that puts bos and eos around texts; an empty text adds none.
nlohmann::json bos_and_eos(const std::string& bos, const std::string& eos, const IdOf& id);

}  // namespace lockstep::tokenizer
