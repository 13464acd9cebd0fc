#include "tokenizers/unigram.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>

#include "lockstep/core/error.hpp"
#include "tokenizers/utf8.hpp"

namespace lockstep::tokenizer {
namespace {

/// The score of an unknown character is this much below that of the worst piece, as in SentencePiece.
constexpr double kUnknownPenalty = 10;

/// The number as the Python package reads it. Its JSON reader rounds twice: the digits, and their product or
/// quotient with a power of ten. The last bit decides between two equally good segmentations.
double rounded_twice(double number) {
  // The shortest digits that identify the number, as files have them: "9.698997306463173e+00".
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), std::abs(number),
                                 std::chars_format::scientific)
                       .ptr;
  std::string digits(buffer.data(), end);
  const auto mark = digits.find('e');
  int power = std::stoi(digits.substr(mark + 1));
  digits.resize(mark);
  if (digits.size() > 1) {
    power -= static_cast<int>(digits.size()) - 2;
    digits.erase(1, 1);
  }
  const auto whole = static_cast<double>(std::stoull(digits));
  const double scale = std::stod(fmt::format("1e{}", std::abs(power)));
  return std::copysign(power < 0 ? whole / scale : whole * scale, number);
}

}  // namespace

Unigram::Unigram(Vocabulary vocabulary, std::vector<double> scores, const Settings& settings,
                 const std::string& file)
    : vocabulary_(std::move(vocabulary)), scores_(std::move(scores)), settings_(settings), file_(file) {
  if (scores_.empty()) throw DataError(fmt::format("'{}': the vocabulary of its Unigram is empty.", file));
  unknown_score_ = *std::min_element(scores_.begin(), scores_.end()) - kUnknownPenalty;
  for (std::uint32_t id = 0; id < vocabulary_.id_end(); ++id) {
    const auto* piece = vocabulary_.token(id);
    if (piece != nullptr && !piece->empty()) trie_.add(*piece, id);
  }
}

void Unigram::fail_unknown() const {
  throw DataError(fmt::format(
      "'{}': the text has a character that is in no piece, and the file names no unk_id.", file_));
}

/// Of two equally good segmentations the first one is kept, as in the Python package.
std::vector<Unigram::Best> Unigram::find_best(std::string_view word) const {
  std::vector<Best> best(word.size() + 1);
  const auto offer = [&](std::size_t begin, std::size_t end, std::uint32_t id, double score) {
    auto& target = best[end];
    const auto sum = score + best[begin].score;
    if (target.begin == kNowhere || sum > target.score) target = {sum, static_cast<std::uint32_t>(begin), id};
  };
  for (std::size_t begin = 0; begin < word.size();) {
    const auto next = begin + sequence_length(word[begin]);
    bool is_known = false;
    trie_.for_each_prefix(word.substr(begin), [&](std::size_t length, std::uint32_t id) {
      offer(begin, begin + length, id, scores_[id]);
      is_known = is_known || begin + length == next;
    });
    if (!is_known) {
      if (!settings_.unknown) fail_unknown();
      offer(begin, next, *settings_.unknown, unknown_score_);
    }
    begin = next;
  }
  return best;
}

void Unigram::tokenize(std::string_view word, Tokens& tokens) const {
  const auto best = find_best(word);
  tokens.clear();
  // From the end: adjacent unknown pieces are fused, and become tokens once the order is reversed.
  for (auto end = static_cast<std::uint32_t>(word.size()); end > 0; end = best[end].begin) {
    const auto& piece = best[end];
    const bool is_unknown = settings_.unknown == piece.id;
    if (is_unknown && !tokens.empty() && tokens.back().id == piece.id) {
      tokens.back().begin = piece.begin;
    } else {
      tokens.push_back({piece.id, piece.begin, end});
    }
  }
  std::reverse(tokens.begin(), tokens.end());
  const auto is_unknown = [&](const Token& token) { return settings_.unknown == token.id; };
  if (std::none_of(tokens.begin(), tokens.end(), is_unknown)) return;
  const Tokens pieces(tokens);
  tokens.clear();
  for (const auto& piece : pieces) {
    if (is_unknown(piece)) {
      put_unknown(word, piece.begin, piece.end, tokens);
    } else {
      tokens.push_back(piece);
    }
  }
}

/// The offsets of each byte's token are those of all the unknown characters.
void Unigram::put_unknown(std::string_view word, std::uint32_t begin, std::uint32_t end,
                          Tokens& tokens) const {
  const auto characters = word.substr(begin, end - begin);
  if (const auto id = vocabulary_.id(characters)) return tokens.push_back({*id, begin, end});
  const auto before = tokens.size();
  for (const char byte : characters) {
    const auto id = settings_.byte_fallback
                        ? vocabulary_.id(fmt::format("<0x{:02X}>", static_cast<unsigned char>(byte)))
                        : std::nullopt;
    if (!id) {
      tokens.resize(before);
      return tokens.push_back({*settings_.unknown, begin, end});
    }
    tokens.push_back({*id, begin, end});
  }
}

std::string_view Unigram::text(const Token& token, std::string_view word) const {
  if (settings_.unknown == token.id) return word.substr(token.begin, token.end - token.begin);
  return *vocabulary_.token(token.id);
}

std::unique_ptr<const Model> make_unigram(const Node& node) {
  Vocabulary vocabulary;
  std::vector<double> scores;
  const auto list = node["vocab"];
  const auto count = list.size();
  for (std::size_t id = 0; id < count; ++id) {
    const auto piece = list.element(id);
    if (piece.size() != 2) piece.fail("a piece and its score are needed");
    const auto wrong = vocabulary.add(piece.element(0).text(), static_cast<std::uint32_t>(id), count);
    if (wrong) piece.fail(*wrong);
    scores.push_back(rounded_twice(piece.element(1).real()));
  }
  Unigram::Settings settings{.byte_fallback = node.flag("byte_fallback", false)};
  if (const auto unknown = node.find("unk_id")) {
    settings.unknown = unknown->number();
    if (*settings.unknown >= count) unknown->fail("the vocabulary has no piece of this number");
  }
  return std::make_unique<Unigram>(std::move(vocabulary), std::move(scores), settings, node.file());
}

}  // namespace lockstep::tokenizer
