#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizers/json_file.hpp"

namespace lockstep::tokenizer {

/// The tokens of a model and their ids, in both directions. Filled once.
class Vocabulary {
 public:
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  /// Adds a token. Returns an error text if the token or its id is already there, or if the id is much larger
  /// than the number of tokens (a file must not set the size of a table that it does not fill).
  std::optional<std::string> add(std::string token, std::uint32_t id, std::size_t expected_tokens);

  std::optional<std::uint32_t> id(std::string_view token) const;
  /// nullptr for an id that no token has.
  const std::string* token(std::uint32_t id) const noexcept;
  std::size_t size() const noexcept { return ids_.size(); }
  /// One more than the largest id.
  std::size_t id_end() const noexcept { return tokens_.size(); }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const noexcept {
      return std::hash<std::string_view>()(text);
    }
  };
  std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>> ids_;
  std::vector<const std::string*> tokens_;
};

/// Reads a vocabulary from an object {token: id}. Throws DataError.
Vocabulary read_vocabulary(const Node& node);

/// Reads a vocabulary from text with one token per line, whose id is the line's number from 0. Throws
/// DataError.
Vocabulary read_vocabulary_lines(std::string_view text, const std::string& file);

/// The lines of a text without their ends; an empty last line does not count.
std::vector<std::string_view> lines_of(std::string_view text);

}  // namespace lockstep::tokenizer
