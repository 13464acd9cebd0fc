#pragma once

#include <array>
#include <unordered_map>

#include "merge_table.hpp"
#include "model.hpp"

namespace lockstep::tokenizer {

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
