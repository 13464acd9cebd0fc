#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "lockstep/tokenizers/tokenizer.hpp"
#include "tokenizers/pretrained/given_token.hpp"
#include "tokenizers/pretrained/model_folder.hpp"

namespace lockstep::tokenizer {

/// Whether this is one of the seven special tokens that every class knows.
bool is_named_token(const std::string& name);

/// The arguments of the tokenizer class and its added tokens, from the files of a folder and the caller's
/// options: what transformers' _from_pretrained() collects.
class ClassArguments {
 public:
  /// The folder must outlive this. Throws DataError, naming file and field, for a field of another kind;
  /// UsageError for an option that is none.
  ClassArguments(const ModelFolder& folder, const PretrainedOptions& options);

  nlohmann::json fields = nlohmann::json::object();
  TokensById by_id;
  std::map<std::string, GivenToken> by_content;
  /// The names of special tokens of the model's own.
  std::set<std::string> own_tokens;

  /// Throws DataError if a token has not got the id that the files give it.
  void check_ids(const AddedList& added) const;

 private:
  Node node() const { return {fields, file_}; }
  void set(const PretrainedOptions& options);
  void rename_extra_tokens();
  void collect_own_tokens();
  void take_extra_object();
  void read_decoder();
  void merge_special_tokens_map();
  void merge_list(const std::string& name, const nlohmann::json& tokens);
  bool is_special(const std::string& content) const;
  void read_added_tokens();
  void read_tokens_of_file();

  const ModelFolder& folder_;
  std::string file_;
  bool has_file_;
  /// What the caller's options set.
  std::set<std::string> set_;
  std::string source_;
};

}  // namespace lockstep::tokenizer
