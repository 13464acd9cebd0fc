#pragma once

#include <memory>

#include "byte_trie.hpp"
#include "vocabulary.hpp"
#include "workspace.hpp"

namespace lockstep::tokenizer {

/// Splits words into tokens. Immutable.
class Model {
 public:
  virtual ~Model() = default;
  Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  /// Sets `tokens` to those of a nonempty word. May be empty if the model has no token for unknown
  /// characters.
  virtual void tokenize(std::string_view word, Tokens& tokens) const = 0;
  /// The end of the part of a long word that begins at `begin`; parts are tokenized independently.
  virtual std::size_t part_end(std::string_view word, std::size_t /*begin*/) const { return word.size(); }
  /// Sets `tokens` to those of such a part, which may differ from those of a whole word with the same text.
  virtual void tokenize_part(std::string_view part, Tokens& tokens) const { tokenize(part, tokens); }
  /// The text of a token of the word.
  virtual std::string_view text(const Token& token, std::string_view /*word*/) const {
    return *vocabulary().token(token.id);
  }
  virtual const Vocabulary& vocabulary() const noexcept = 0;
};

/// Creates the model of a file's field "model". `byte_level`: the pre-tokenizer ends with ByteLevel, which
/// only BPE supports. Throws DataError for an unsupported model.
std::unique_ptr<const Model> make_model(const Node& node, bool byte_level);

/// BERT's model: greedily takes the longest matching token from the left; tokens that continue a word have a
/// prefix.
class WordPiece final : public Model {
 public:
  struct Settings {
    std::string unknown_token = "[UNK]";
    std::string continuing_prefix = "##";
    /// Longer words (in characters) become the unknown token.
    std::uint32_t longest_word = 100;
  };
  /// Throws DataError, naming the file, if the vocabulary has no unknown token.
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
