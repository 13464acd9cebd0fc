#pragma once

#include <memory>

#include "tokenizers/byte_trie.hpp"
#include "tokenizers/vocabulary.hpp"
#include "tokenizers/workspace.hpp"

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
  virtual bool is_bpe() const noexcept { return false; }
};

/// The type of a file's field "model"; for older files, which do not name it, what its fields make it in the
/// package. Throws DataError if they make it none.
std::string model_type(const Node& node);

/// Creates the model of a file's field "model". `byte_level`: its words are bytes, which has_byte_level()
/// must allow. Throws DataError for an unsupported model.
std::unique_ptr<const Model> make_model(const Node& node, bool byte_level);

/// Whether the model can take words as bytes: a BPE with tokens for all bytes. Otherwise its words must be
/// written with the visible characters of bytes.
bool has_byte_level(const Node& node);

/// A word is a token, or unknown.
class WordLevel final : public Model {
 public:
  /// The unknown token may be missing from the vocabulary; then an unknown word is an error.
  WordLevel(Vocabulary vocabulary, std::string unknown_token, std::string file);

  /// Throws DataError for an unknown word if there is no token for it.
  void tokenize(std::string_view word, Tokens& tokens) const override;
  const Vocabulary& vocabulary() const noexcept override { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
  std::string unknown_token_;
  std::string file_;
};

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
