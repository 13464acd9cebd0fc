#pragma once

#include <array>
#include <memory>
#include <unordered_map>

#include "byte_trie.hpp"
#include "merge_table.hpp"
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

  /// Sets `tokens` to those of a word that is not empty: at least one, and together they cover it.
  virtual void tokenize(std::string_view word, Tokens& tokens) const = 0;
  virtual const Vocabulary& vocabulary() const noexcept = 0;
};

/// The model that a file's field "model" describes; `byte_level` tells whether its pre-tokenizer ends with
/// ByteLevel, which byte-level BPE needs and WordPiece cannot have. Throws DataError for one that is not
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

/// The merges of a file in their order: two tokens each, as they stand in the vocabulary.
using Merges = std::vector<std::pair<std::string, std::string>>;

/// Byte-level byte-pair encoding: a word is its bytes, and of all neighbours that may be merged the pair with
/// the lowest rank, the leftmost first, is, until none is left.
class Bpe final : public Model {
 public:
  /// Throws DataError, naming the file, when a merge or one of the 243 bytes of UTF-8 has no token. With
  /// `ignore_merges` a word that is a token is one, whatever the merges make of it.
  Bpe(Vocabulary vocabulary, const Merges& merges, bool ignore_merges, const std::string& file);

  void tokenize(std::string_view word, Tokens& tokens) const override;
  const Vocabulary& vocabulary() const noexcept override { return vocabulary_; }

 private:
  std::uint32_t require(const std::string& token, std::size_t number, const std::string& file) const;
  void merge_short(Tokens& tokens) const;
  void merge_long(Tokens& tokens) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  std::array<std::uint32_t, 256> byte_ids_{};
  bool ignore_merges_;
  /// The tokens by their bytes, for ignore_merges.
  std::unordered_map<std::string, std::uint32_t> words_;
};

}  // namespace lockstep::tokenizer
