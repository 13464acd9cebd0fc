#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "json_file.hpp"

namespace lockstep::tokenizer {

/// The tokens of a model and their ids, both ways. Filled once.
class Vocabulary {
 public:
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  /// Adds a token. The text of why not, where the token or its id is there already or the id is far beyond
  /// what the number of tokens explains (a file must not name the size of a table that it does not fill).
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

/// The vocabulary of an object {token: id}. Throws DataError.
Vocabulary read_vocabulary(const Node& node);

/// The vocabulary of a text with one token a line, whose ids are the lines' numbers from 0. Throws DataError.
Vocabulary read_vocabulary_lines(std::string_view text, const std::string& file);

/// The lines of a text without their ends; an empty last one is no line.
std::vector<std::string_view> lines_of(std::string_view text);

}  // namespace lockstep::tokenizer
