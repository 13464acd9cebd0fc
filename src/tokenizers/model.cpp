#include "tokenizers/model.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "lockstep/core/error.hpp"
#include "tokenizers/bpe.hpp"
#include "tokenizers/unigram.hpp"
#include "tokenizers/utf8.hpp"

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
  for (std::size_t position = 0; position < word.size();) {
    const auto match = (position == 0 ? first_ : further_).longest(word.substr(position));
    if (match.length == 0) return tokens.assign(1, {unknown_, 0, whole});
    const auto begin = static_cast<std::uint32_t>(position);
    position += match.length;
    tokens.push_back({match.value, begin, static_cast<std::uint32_t>(position)});
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

std::unique_ptr<const Model> make_word_level(const Node& node) {
  return std::make_unique<WordLevel>(read_vocabulary(node["vocab"]), node.text("unk_token", "<unk>"),
                                     node.file());
}

}  // namespace

WordLevel::WordLevel(Vocabulary vocabulary, std::string unknown_token, std::string file)
    : vocabulary_(std::move(vocabulary)), unknown_token_(std::move(unknown_token)), file_(std::move(file)) {}

void WordLevel::tokenize(std::string_view word, Tokens& tokens) const {
  auto id = vocabulary_.id(word);
  if (!id) id = vocabulary_.id(unknown_token_);
  if (!id) {
    throw DataError(
        fmt::format("'{}': the vocabulary has neither the word '{}' nor '{}', the token of unknown words.",
                    file_, word.substr(0, 100), unknown_token_));
  }
  tokens.assign(1, {*id, 0, static_cast<std::uint32_t>(word.size())});
}

std::string model_type(const Node& node) {
  if (const auto type = node.text("type", ""); !type.empty()) return type;
  const auto vocabulary = node.find("vocab");
  if (vocabulary && node.find("merges")) return "BPE";
  if (vocabulary && vocabulary->is_list()) return "Unigram";
  const bool names_unknown = vocabulary && node.find("unk_token");
  if (names_unknown && node.find("continuing_subword_prefix") && node.find("max_input_chars_per_word"))
    return "WordPiece";
  if (names_unknown) return "WordLevel";
  node.fail(
      "it has no type, and its fields are those of no model: of BPE (vocab and merges), Unigram (a list "
      "vocab), "
      "WordPiece (vocab, unk_token, continuing_subword_prefix and max_input_chars_per_word) and WordLevel "
      "(vocab and "
      "unk_token)");
}

std::unique_ptr<const Model> make_model(const Node& node, bool byte_level) {
  const auto type = model_type(node);
  if (type == "BPE") return make_bpe(node, byte_level);
  if (type == "Unigram") return make_unigram(node);
  if (type == "WordPiece") return make_word_piece(node);
  if (type == "WordLevel") return make_word_level(node);
  node.fail(fmt::format("the model '{}' is not supported (BPE, Unigram, WordLevel and WordPiece are)", type));
}

bool has_byte_level(const Node& node) { return model_type(node) == "BPE" && has_all_bytes(node); }

}  // namespace lockstep::tokenizer
