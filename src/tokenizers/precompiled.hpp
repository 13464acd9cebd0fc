#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "json_file.hpp"
#include "normalizer.hpp"

namespace lockstep::tokenizer {

/// SentencePiece's compiled table of replacements: a double-array trie (darts-clone) from UTF-8 to places in
/// a blob of texts that end with a zero byte.
class Precompiled final : public Normalizer {
 public:
  /// Of a file's "precompiled_charsmap", in base64. Throws DataError for a table that contradicts itself.
  explicit Precompiled(const Node& node);

  /// Throws DataError when the trie points at no text.
  void apply(Characters& text, std::uint32_t first) const override;

 private:
  /// What the bytes become, by the shortest of their beginnings that the trie has: so does the Python
  /// package. Nothing when it has none.
  std::optional<std::string_view> replacement(std::string_view bytes) const;
  std::string_view text_at(std::size_t place) const;

  std::vector<std::uint32_t> units_;
  std::string blob_;
  std::string place_;
};

}  // namespace lockstep::tokenizer
