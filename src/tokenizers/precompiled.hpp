#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tokenizers/json_file.hpp"
#include "tokenizers/normalizer.hpp"

namespace lockstep::tokenizer {

/// SentencePiece's compiled replacement table: a double-array trie (darts-clone) that maps UTF-8 to positions
/// in a blob of zero-terminated texts.
class Precompiled final : public Normalizer {
 public:
  /// Reads a file's "precompiled_charsmap", in base64. Throws DataError for an inconsistent table.
  explicit Precompiled(const Node& node);

  /// Throws DataError if the trie points to an invalid text.
  void apply(Characters& text, std::uint32_t first) const override;

 private:
  /// The replacement of the bytes, by the shortest prefix that the trie contains, as in the Python package.
  /// Nothing if there is none.
  std::optional<std::string_view> replacement(std::string_view bytes) const;
  std::string_view text_at(std::size_t position) const;

  std::vector<std::uint32_t> units_;
  std::string blob_;
  std::string location_;
};

}  // namespace lockstep::tokenizer
