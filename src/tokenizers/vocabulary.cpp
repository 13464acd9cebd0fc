#include "tokenizers/vocabulary.hpp"

#include <fmt/core.h>

#include "lockstep/core/error.hpp"

namespace lockstep::tokenizer {
namespace {

/// Vocabularies may have unused ids, but not eight per token.
constexpr std::size_t kHolesPerToken = 8;
constexpr std::size_t kSmallTable = 100'000;

std::string in_quotes(std::string_view token) { return fmt::format("'{}'", token.substr(0, 100)); }

}  // namespace

std::optional<std::string> Vocabulary::add(std::string token, std::uint32_t id, std::size_t expected_tokens) {
  if (id >= kSmallTable + kHolesPerToken * expected_tokens) {
    return fmt::format("the token {} has the id {}, but there are only {} tokens", in_quotes(token), id,
                       expected_tokens);
  }
  if (const auto* other = this->token(id); other != nullptr) {
    return fmt::format("the tokens {} and {} have the same id {}", in_quotes(*other), in_quotes(token), id);
  }
  const auto [entry, is_new] = ids_.emplace(std::move(token), id);
  if (!is_new) {
    return fmt::format("the token {} has two ids, {} and {}", in_quotes(entry->first), entry->second, id);
  }
  if (id >= tokens_.size()) tokens_.resize(id + std::size_t{1});
  tokens_[id] = &entry->first;
  return std::nullopt;
}

std::optional<std::uint32_t> Vocabulary::id(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

const std::string* Vocabulary::token(std::uint32_t id) const noexcept {
  return id < tokens_.size() ? tokens_[id] : nullptr;
}

Vocabulary read_vocabulary(const Node& node) {
  Vocabulary vocabulary;
  const auto& object = node.object();
  for (const auto& [token, id] : object.items()) {
    if (const auto wrong = vocabulary.add(token, node.value(id, token).number(), object.size()))
      node.fail(*wrong);
  }
  return vocabulary;
}

Vocabulary read_vocabulary_lines(std::string_view text, const std::string& file) {
  Vocabulary vocabulary;
  const auto lines = lines_of(text);
  for (std::size_t number = 0; number < lines.size(); ++number) {
    const auto wrong =
        vocabulary.add(std::string(lines[number]), static_cast<std::uint32_t>(number), lines.size());
    if (wrong) {
      throw DataError(fmt::format("'{}' is not a valid vocabulary: line {}: {}.", file, number + 1, *wrong));
    }
  }
  return vocabulary;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
  }
  return lines;
}

}  // namespace lockstep::tokenizer
