#include "model.hpp"

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

namespace {

/// A setting that changes nothing when it is absent, null or empty.
void refuse_text(const Node& node, const std::string& field) {
  const auto text = node.text(field, "");
  if (!text.empty()) node.fail("the model's '" + field + "' ('" + text + "') is not supported");
}

void refuse_flag(const Node& node, const std::string& field) {
  if (node.flag(field, false)) node.fail("the model's '" + field + "' is not supported");
}

std::pair<std::string, std::string> read_merge(const Node& node) {
  if (node.is_list()) {
    if (node.size() != 2) node.fail("a merge has two tokens, not " + std::to_string(node.size()));
    return {node.element(0).text(), node.element(1).text()};
  }
  const auto& text = node.text();
  const auto blank = text.find(' ');
  if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos) {
    node.fail("'" + text.substr(0, 100) + "' is no merge: two tokens with a blank between them are needed");
  }
  return {text.substr(0, blank), text.substr(blank + 1)};
}

Merges read_merges(const Node& node) {
  Merges merges;
  const auto count = node.size();
  for (std::size_t index = 0; index < count; ++index) {
    const auto merge = node.element(index);
    if (merge.is_text() && merge.text().starts_with("#version")) continue;
    merges.push_back(read_merge(merge));
  }
  return merges;
}

std::unique_ptr<const Model> make_word_piece(const Node& node) {
  WordPiece::Settings settings;
  settings.unknown_token = node.text("unk_token", settings.unknown_token);
  settings.continuing_prefix = node.text("continuing_subword_prefix", settings.continuing_prefix);
  settings.longest_word = node.number("max_input_chars_per_word", settings.longest_word);
  return std::make_unique<WordPiece>(read_vocabulary(node["vocab"]), settings, node.file());
}

/// Every byte has a token, so nothing is unknown, and what is said of unknown characters has no effect.
std::unique_ptr<const Model> make_byte_pairs(const Node& node) {
  if (const auto dropout = node.find("dropout"); dropout && !dropout->is_zero()) {
    dropout->fail("the model's 'dropout' is not supported");
  }
  refuse_text(node, "continuing_subword_prefix");
  refuse_text(node, "end_of_word_suffix");
  refuse_flag(node, "byte_fallback");
  return std::make_unique<Bpe>(read_vocabulary(node["vocab"]), read_merges(node["merges"]),
                               node.flag("ignore_merges", false), node.file());
}

/// Files of old versions do not name the model; what it has tells.
std::string type_of(const Node& node) {
  const auto type = node.text("type", "");
  if (!type.empty()) return type;
  return node.find("merges") ? "BPE" : node.find("continuing_subword_prefix") ? "WordPiece" : "";
}

}  // namespace

std::unique_ptr<const Model> make_model(const Node& node, bool byte_level) {
  const auto type = type_of(node);
  if (type == "WordPiece" && byte_level) {
    node.fail("a WordPiece behind the pre-tokenizer ByteLevel is not supported");
  }
  if (type == "WordPiece") return make_word_piece(node);
  if (type == "BPE" && !byte_level) {
    node.fail("a BPE without the pre-tokenizer ByteLevel is not supported: only byte-level BPE is");
  }
  if (type == "BPE") return make_byte_pairs(node);
  node.fail("the model '" + type + "' is not supported (WordPiece and byte-level BPE are)");
}

}  // namespace lockstep::tokenizer
