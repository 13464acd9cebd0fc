#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "byte_trie.hpp"
#include "json_file.hpp"
#include "normalizer.hpp"
#include "vocabulary.hpp"

namespace lockstep::tokenizer {

/// A token that is found in the text before anything else looks at it.
struct AddedToken {
  std::string content;
  std::uint32_t id = 0;
  /// Only where no letter, digit or _ is next to it.
  bool single_word = false;
  /// Takes the white space before, or behind, it along.
  bool lstrip = false;
  bool rstrip = false;
  /// Looked for in the normalized text, by its own normalized form.
  bool normalized = true;
  /// Left out by decode(), unless its normalized form is another one: that is how the Python package does it.
  bool special = false;
  /// What it is called and decoded as: the form that it is looked for by.
  std::string shown;
};

/// Finds such tokens in a text. Immutable.
class TokenFinder {
 public:
  /// Adds what to look for. Of two tokens with the same text the first one counts.
  void add(const std::string& text, const AddedToken& token);
  bool empty() const noexcept { return tokens_.empty(); }

  /// Called for each part of the text in order: with the token that was found there, or nullptr for text
  /// between.
  using Part = std::function<void(std::size_t begin, std::size_t end, const AddedToken* token)>;
  /// The leftmost token first, and of those the longest one.
  void split(std::string_view text, const Part& part) const;

 private:
  struct Found {
    std::size_t begin;
    std::size_t end;
  };
  /// How far the token reaches; false when it is no word of its own.
  bool reaches(std::string_view text, std::size_t from, const AddedToken& token, Found& found) const;

  ByteTrie trie_;
  std::array<bool, 256> begins_{};
  std::vector<AddedToken> tokens_;
};

/// The added tokens of a file and the two ways of looking for them.
struct AddedTokens {
  std::vector<AddedToken> tokens;
  TokenFinder raw;
  TokenFinder normalized;

  AddedTokens() = default;
  /// Of a file's field "added_tokens". Throws DataError for a token that is there twice, or whose id is not
  /// the one that the vocabulary has, or that comes next behind it.
  AddedTokens(const Node& node, const Vocabulary& vocabulary, const Normalizer* normalizer);

  const AddedToken* find(std::uint32_t id) const noexcept;
  const AddedToken* find(std::string_view content) const noexcept;
  /// Whether decode() leaves out this token when it is told to leave out special ones.
  bool is_special(const AddedToken& token) const noexcept;

 private:
  void check(const Node& node, const AddedToken& token, std::optional<std::uint32_t> known,
             std::uint32_t next) const;
  void fill(bool special);

  std::unordered_map<std::uint32_t, std::size_t> by_id_;
  std::unordered_map<std::string, std::size_t> by_content_;
};

}  // namespace lockstep::tokenizer
