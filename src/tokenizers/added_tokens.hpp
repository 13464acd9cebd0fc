#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "tokenizers/byte_trie.hpp"
#include "tokenizers/json_file.hpp"
#include "tokenizers/normalizer.hpp"
#include "tokenizers/vocabulary.hpp"

namespace lockstep::tokenizer {

/// A token that is matched in the text before any other processing.
struct AddedToken {
  std::string content;
  std::uint32_t id = 0;
  /// Only if it is not adjacent to a letter, digit or _.
  bool single_word = false;
  /// Includes the white space before, or after, it.
  bool lstrip = false;
  bool rstrip = false;
  /// Matched in the normalized text, by its own normalized form.
  bool normalized = true;
  /// Skipped by decode(), unless its normalized form is a different one, as in the Python package.
  bool special = false;
  /// Its text in Encoding::tokens and in decoded text: the form by which it is matched.
  std::string shown;
};

/// Finds added tokens in a text. Immutable.
class TokenFinder {
 public:
  /// Adds a token under `text`. Of two tokens with the same text the first one is used.
  void add(const std::string& text, const AddedToken& token);
  bool empty() const noexcept { return tokens_.empty(); }
  /// Special tokens are text like any other from now on.
  void split_special_tokens() { splits_special_ = true; }

  /// Called for each part of the text in order: with the token that was found, or nullptr for text between
  /// tokens.
  using Part = std::function<void(std::size_t begin, std::size_t end, const AddedToken* token)>;
  /// Finds the leftmost token, and the longest of those that begin there.
  void split(std::string_view text, const Part& part) const;

 private:
  struct Found {
    std::size_t begin;
    std::size_t end;
  };
  /// Sets the extent of the token; false if it must be a single word but is not.
  bool reaches(std::string_view text, std::size_t from, const AddedToken& token, Found& found) const;

  ByteTrie trie_;
  bool splits_special_ = false;
  std::array<bool, 256> begins_{};
  std::vector<AddedToken> tokens_;
};

/// The added tokens of a file, and the finders for raw and for normalized text.
struct AddedTokens {
  std::vector<AddedToken> tokens;
  TokenFinder raw;
  TokenFinder normalized;

  AddedTokens() = default;
  /// Reads a file's field "added_tokens". Throws DataError for a token that occurs twice, or whose id is
  /// neither that of the vocabulary nor the next one after all others.
  AddedTokens(const Node& node, const Vocabulary& vocabulary, const Normalizer* normalizer);

  const AddedToken* find(std::uint32_t id) const noexcept;
  const AddedToken* find(std::string_view content) const noexcept;
  /// Special tokens in a text are split like any other part of it, as with split_special_tokens of
  /// transformers. What the post-processor adds stays.
  void split_special_tokens();
  /// Whether decode() skips this token with skip_special_tokens.
  bool is_special(const AddedToken& token) const noexcept;

 private:
  void check_token(const Node& node, const AddedToken& token, std::optional<std::uint32_t> known,
                   std::uint32_t next) const;
  void fill(bool special);

  std::unordered_map<std::uint32_t, std::size_t> by_id_;
  std::unordered_map<std::string, std::size_t> by_content_;
};

}  // namespace lockstep::tokenizer
