#pragma once

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/pretrained/given_token.hpp"

namespace lockstep::tokenizer {

/// The seven special tokens that every class knows, in the order in which they are added.
inline constexpr const char* kNamedTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                               "pad_token", "cls_token", "mask_token"};

/// The arguments of a tokenizer class: the fields of a folder's files, which the caller's options replace,
/// and the special tokens among them.
class ClassFields {
 public:
  /// `fields` and `known`, the added tokens of the folder's files by their content, must outlive this. `file`
  /// is the file that errors name.
  ClassFields(const nlohmann::json& fields, const std::map<std::string, GivenToken>& known, std::string file)
      : fields_(fields), known_(known), file_(std::move(file)) {}

  Node node() const { return {fields_, file_}; }
  bool flag(const char* name, bool otherwise) const { return node().flag(name, otherwise); }
  bool has(const char* name) const { return fields_.contains(name); }

  /// Sets a special token to what the files say, otherwise to this. A token given as a text is matched like
  /// `otherwise`. Returns its text; an empty one if the files say that there is none.
  std::string token(const char* name, GivenToken otherwise);
  /// What the files say of a special token that the class has no default for.
  void take(const std::string& name);
  const GivenToken* find(const std::string& name) const;
  /// The text of a special token, or an empty one.
  std::string text(const std::string& name) const;
  const std::map<std::string, GivenToken>& tokens() const { return tokens_; }

 private:
  GivenToken given(const Node& node) const;

  const nlohmann::json& fields_;
  const std::map<std::string, GivenToken>& known_;
  std::string file_;
  std::map<std::string, GivenToken> tokens_;
};

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

/// The language tokens of NLLB, mBART and mBART-50.
const std::vector<std::string>& nllb_languages();
const std::vector<std::string>& mbart_languages();
const std::vector<std::string>& mbart50_languages();

}  // namespace lockstep::tokenizer
