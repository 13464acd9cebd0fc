#pragma once

#include "byte_trie.hpp"
#include "model.hpp"

namespace lockstep::tokenizer {

/// BERT's model: from the left the longest token that fits; the ones that go on a word have a prefix.
class WordPiece final : public Model {
 public:
  struct Settings {
    std::string unknown_token = "[UNK]";
    std::string continuing_prefix = "##";
    /// A word of more characters is unknown.
    std::uint32_t longest_word = 100;
  };
  /// Throws DataError, naming the file, when the vocabulary has no unknown token.
  WordPiece(Vocabulary vocabulary, const Settings& settings, const std::string& file);

  void tokenize(std::string_view word, Tokens& tokens) const override;
  const Vocabulary& vocabulary() const noexcept override { return vocabulary_; }

 private:
  bool is_too_long(std::string_view word) const noexcept;

  Vocabulary vocabulary_;
  std::uint32_t unknown_ = 0;
  std::uint32_t longest_word_;
  ByteTrie first_;
  ByteTrie further_;
};

}  // namespace lockstep::tokenizer
