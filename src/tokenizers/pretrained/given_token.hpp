#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizers/json_file.hpp"
#include "tokenizers/vocabulary.hpp"

namespace lockstep::tokenizer {

/// A special or added token as files give it: a text, or a text with how it is matched.
struct GivenToken {
  std::string content;
  /// Given as a text alone: a class may say how it is matched.
  bool is_text = true;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  /// If not set: the opposite of `special`.
  std::optional<bool> normalized = std::nullopt;
  bool special = false;
};

/// Reads a text, or an object with "content". Throws DataError.
GivenToken read_given_token(const Node& node);

/// Added tokens by their ids.
using TokensById = std::map<std::uint32_t, GivenToken>;

/// A tokenizer's added tokens, as the package's add_tokens() keeps them: a token of the vocabulary keeps its
/// id, another one gets the next id, and one that is there already is matched as it was given last.
class AddedList {
 public:
  /// The vocabulary must outlive the list.
  explicit AddedList(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  /// Takes over a tokenizer.json's field "added_tokens". Throws DataError.
  void take(const Node& added_tokens);
  void add(GivenToken token);
  bool contains(std::string_view content) const { return indices_.contains(std::string(content)); }
  /// The id of an added token or of one of the vocabulary.
  std::optional<std::uint32_t> id(std::string_view content) const;
  /// As a tokenizer.json's field "added_tokens", by ids.
  nlohmann::json document() const;

 private:
  std::uint32_t next_id() const;

  struct Entry {
    GivenToken token;
    std::uint32_t id;
  };
  const Vocabulary& vocabulary_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t> indices_;
  std::optional<std::uint32_t> largest_;
};

}  // namespace lockstep::tokenizer
