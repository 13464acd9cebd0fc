#pragma once

#include <memory>

#include "byte_trie.hpp"
#include "vocabulary.hpp"
#include "workspace.hpp"

namespace lockstep::tokenizer {

/// Turns words into tokens. Immutable.
class Model {
 public:
  virtual ~Model() = default;
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// Sets `tokens` to those of a word that is not empty. A model without a token of unknown characters may
  /// give none.
  virtual void tokenize(std::string_view word, Tokens& tokens) const = 0;
  /// Where the part of a long word ends that begins at `begin`: one part's tokens do not depend on the
  /// others.
  virtual std::size_t part_end(std::string_view word, std::size_t /*begin*/) const { return word.size(); }
  /// Sets `tokens` to those of such a part, which may be others than if it were a word of its own.
  virtual void tokenize_part(std::string_view part, Tokens& tokens) const { tokenize(part, tokens); }
  /// What a token of the word is called.
  virtual std::string_view text(const Token& token, std::string_view /*word*/) const {
    return *vocabulary().token(token.id);
  }
  virtual const Vocabulary& vocabulary() const noexcept = 0;
};

/// The model that a file's field "model" describes; `byte_level` tells whether its pre-tokenizer ends with
/// ByteLevel, which only BPE can have. Throws DataError for one that is not
/// supported.
std::unique_ptr<const Model> make_model(const Node& node, bool byte_level);

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
