#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

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

}  // namespace lockstep::tokenizer
