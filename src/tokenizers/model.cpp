#include "model.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "bpe.hpp"
#include "lockstep/core/error.hpp"
#include "unigram.hpp"
#include "utf8.hpp"

namespace lockstep::tokenizer {

WordPiece::WordPiece(Vocabulary vocabulary, const Settings& settings, const std::string& file)
    : vocabulary_(std::move(vocabulary)), longest_word_(settings.longest_word) {
  const auto unknown = vocabulary_.id(settings.unknown_token);
  if (!unknown) {
    throw DataError(fmt::format("'{}': the vocabulary has no '{}', the token of unknown words.", file,
                                settings.unknown_token));
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
  if (is_too_long(word)) return tokens.push_back({unknown_, 0, whole});
  for (std::size_t place = 0; place < word.size();) {
    const auto match = (place == 0 ? first_ : further_).longest(word.substr(place));
    if (match.length == 0) return tokens.assign(1, {unknown_, 0, whole});
    const auto begin = static_cast<std::uint32_t>(place);
    place += match.length;
    tokens.push_back({match.value, begin, static_cast<std::uint32_t>(place)});
  }
}

namespace {

std::unique_ptr<const Model> make_word_piece(const Node& node) {
  WordPiece::Settings settings;
  settings.unknown_token = node.text("unk_token", settings.unknown_token);
  settings.continuing_prefix = node.text("continuing_subword_prefix", settings.continuing_prefix);
  settings.longest_word = node.number("max_input_chars_per_word", settings.longest_word);
  return std::make_unique<WordPiece>(read_vocabulary(node["vocab"]), settings, node.file());
}

/// Files of old versions do not name the model; its fields identify it.
std::string type_of(const Node& node) {
  const auto type = node.text("type", "");
  if (!type.empty()) return type;
  return node.find("merges") ? "BPE" : node.find("continuing_subword_prefix") ? "WordPiece" : "";
}

}  // namespace

std::unique_ptr<const Model> make_model(const Node& node, bool byte_level) {
  const auto type = type_of(node);
  if (type == "BPE") return make_bpe(node, byte_level);
  if (type != "WordPiece" && type != "Unigram") {
    node.fail(fmt::format("the model '{}' is not supported (BPE, Unigram and WordPiece are)", type));
  }
  if (byte_level) node.fail(fmt::format("a {} behind the pre-tokenizer ByteLevel is not supported", type));
  return type == "Unigram" ? make_unigram(node) : make_word_piece(node);
}

}  // namespace lockstep::tokenizer
