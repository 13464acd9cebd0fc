#pragma once

#include <optional>

#include "tokenizers/model.hpp"

namespace lockstep::tokenizer {

/// SentencePiece's model of pieces with scores: splits a word into the pieces with the largest sum of scores.
class Unigram final : public Model {
 public:
  struct Settings {
    /// The piece of unknown characters; adjacent ones are fused.
    std::optional<std::uint32_t> unknown = std::nullopt;
    /// Unknown characters become pieces of their bytes, "<0x0A>", if the vocabulary has all of these.
    bool byte_fallback = false;
  };
  /// `scores` are indexed by id. Throws DataError, naming the file, if there is no piece.
  Unigram(Vocabulary vocabulary, std::vector<double> scores, const Settings& settings,
          const std::string& file);

  /// Throws DataError for an unknown character if there is no piece for it.
  void tokenize(std::string_view word, Tokens& tokens) const override;
  /// The text of an unknown piece is its characters.
  std::string_view text(const Token& token, std::string_view word) const override;
  const Vocabulary& vocabulary() const noexcept override { return vocabulary_; }

 private:
  /// The best segmentation of the bytes before a position: its last piece, and the sum of scores.
  struct Best {
    double score = 0;
    std::uint32_t begin = kNowhere;
    std::uint32_t id = 0;
  };
  static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};

  std::vector<Best> find_best(std::string_view word) const;
  void put_unknown(std::string_view word, std::uint32_t begin, std::uint32_t end, Tokens& tokens) const;
  [[noreturn]] void fail_unknown() const;

  Vocabulary vocabulary_;
  std::vector<double> scores_;
  Settings settings_;
  std::string file_;
  double unknown_score_ = 0;
  ByteTrie trie_;
};

/// Creates the model of a file of type Unigram. Throws DataError.
std::unique_ptr<const Model> make_unigram(const Node& node);

}  // namespace lockstep::tokenizer
