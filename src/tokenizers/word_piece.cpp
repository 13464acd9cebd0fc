#include "word_piece.hpp"

#include <algorithm>

#include "lockstep/core/error.hpp"
#include "utf8.hpp"

namespace lockstep::tokenizer {

WordPiece::WordPiece(Vocabulary vocabulary, const Settings& settings, const std::string& file)
    : vocabulary_(std::move(vocabulary)), longest_word_(settings.longest_word) {
  const auto unknown = vocabulary_.id(settings.unknown_token);
  if (!unknown) {
    throw DataError("'" + file + "': the vocabulary has no '" + settings.unknown_token +
                    "', the token of unknown words.");
  }
  unknown_ = *unknown;
  const auto& prefix = settings.continuing_prefix;
  for (std::uint32_t id = 0; id < vocabulary_.id_end(); ++id) {
    const auto* token = vocabulary_.token(id);
    if (token == nullptr || token->empty()) continue;
    first_.add(*token, id);
    if (token->size() > prefix.size() && token->starts_with(prefix)) {
      further_.add(std::string_view(*token).substr(prefix.size()), id);
    }
  }
}

bool WordPiece::is_too_long(std::string_view word) const noexcept {
  if (word.size() <= longest_word_) return false;
  const auto is_first = [](char byte) { return !is_tail(byte); };
  return static_cast<std::size_t>(std::count_if(word.begin(), word.end(), is_first)) > longest_word_;
}

void WordPiece::tokenize(std::string_view word, Tokens& tokens) const {
  const auto whole = static_cast<std::uint32_t>(word.size());
  tokens.clear();
  if (is_too_long(word)) return tokens.push_back({unknown_, whole});
  for (std::size_t place = 0; place < word.size();) {
    const auto match = (place == 0 ? first_ : further_).longest(word.substr(place));
    if (match.length == 0) return tokens.assign(1, {unknown_, whole});
    place += match.length;
    tokens.push_back({match.value, static_cast<std::uint32_t>(place)});
  }
}

}  // namespace lockstep::tokenizer
