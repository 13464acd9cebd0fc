#include "tokenizers/bpe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <queue>

#include "lockstep/core/error.hpp"
#include "tokenizers/byte_alphabet.hpp"
#include "tokenizers/utf8.hpp"

namespace lockstep::tokenizer {
namespace {

/// Up to this many tokens, scanning all pairs for each merge is faster than a queue.
constexpr std::size_t kShort = 40;

/// Bytes that never occur in valid UTF-8 (RFC 3629, section 4).
bool is_never_text(unsigned byte) { return byte == 0xC0 || byte == 0xC1 || byte > 0xF4; }

[[noreturn]] void fail(const std::string& file, const std::string& what) {
  throw DataError(fmt::format("'{}' is not a BPE: {}.", file, what));
}

/// A possible merge; outdated if one of its two tokens has been merged in the meantime.
struct Candidate {
  std::uint32_t rank;
  std::uint32_t left;
  std::uint32_t left_id;
  std::uint32_t right_id;
  std::uint32_t id;
  friend bool operator>(const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  }
};

/// Merges a long word, as a linked list of tokens with a queue of merges: n log n.
class MergeQueue {
 public:
  MergeQueue(const MergeTable& merges, Tokens& tokens) : merges_(merges), tokens_(tokens) {
    const auto count = static_cast<std::uint32_t>(tokens.size());
    for (std::uint32_t position = 0; position < count; ++position) {
      next_.push_back(position + 1);
      previous_.push_back(position - 1);
    }
    alive_.assign(count, true);
    for (std::uint32_t position = 0; position + 1 < count; ++position) offer(position);
  }

  void run() {
    while (!queue_.empty()) {
      const auto best = queue_.top();
      queue_.pop();
      if (is_current(best)) merge(best);
    }
    std::size_t kept = 0;
    for (std::uint32_t position = 0; position < tokens_.size(); position = next_[position])
      tokens_[kept++] = tokens_[position];
    tokens_.resize(kept);
  }

 private:
  void offer(std::uint32_t left) {
    const auto right = next_[left];
    if (right >= tokens_.size()) return;
    const auto merge = merges_.find(tokens_[left].id, tokens_[right].id);
    if (merge.rank == MergeTable::kNever) return;
    queue_.push({merge.rank, left, tokens_[left].id, tokens_[right].id, merge.id});
  }

  bool is_current(const Candidate& candidate) const {
    const auto left = candidate.left;
    return alive_[left] && tokens_[left].id == candidate.left_id && next_[left] < tokens_.size() &&
           tokens_[next_[left]].id == candidate.right_id;
  }

  void merge(const Candidate& candidate) {
    const auto left = candidate.left;
    const auto right = next_[left];
    alive_[right] = false;
    tokens_[left] = {candidate.id, tokens_[left].begin, tokens_[right].end};
    next_[left] = next_[right];
    if (next_[left] < tokens_.size()) previous_[next_[left]] = left;
    if (left > 0) offer(previous_[left]);
    offer(left);
  }

  const MergeTable& merges_;
  Tokens& tokens_;
  std::vector<std::uint32_t> next_;
  std::vector<std::uint32_t> previous_;
  std::vector<bool> alive_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue_;
};

std::pair<std::string, std::string> read_merge(const Node& node) {
  if (node.is_list()) {
    if (node.size() != 2) node.fail(fmt::format("a merge has two tokens, not {}", node.size()));
    return {node.element(0).text(), node.element(1).text()};
  }
  if (auto merge = split_merge(node.text())) return *std::move(merge);
  node.fail(fmt::format("'{}' is not a merge: two tokens with a blank between them are needed",
                        node.text().substr(0, 100)));
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

}  // namespace

std::uint32_t Bpe::Symbols::find(char32_t code) const noexcept {
  if (code < low.size()) return low[code];
  const auto found = others.find(code);
  return found == others.end() ? kNone : found->second;
}

void Bpe::Symbols::set(char32_t code, std::uint32_t id) {
  if (code < low.size()) {
    low[code] = id;
  } else {
    others[code] = id;
  }
}

Bpe::Bpe(Vocabulary vocabulary, const Merges& merges, Settings settings, const std::string& file)
    : vocabulary_(std::move(vocabulary)),
      settings_(std::move(settings)),
      file_(file),
      merges_(merges.size()) {
  for (auto& symbols : symbols_) symbols.low.fill(kNone);
  for (std::uint32_t id = 0; id < vocabulary_.id_end(); ++id) {
    const auto* token = vocabulary_.token(id);
    for (unsigned position = 0; token != nullptr && position < symbols_.size(); ++position) {
      add_symbol(*token, id, position);
    }
  }
  if (settings_.unknown_token) unknown_ = vocabulary_.id(*settings_.unknown_token).value_or(kNone);
  for (unsigned byte = 0; byte < 256; ++byte) {
    fallback_[byte] = vocabulary_.id(fmt::format("<0x{:02X}>", byte)).value_or(kNone);
  }
  add_merges(merges, file);
  if (settings_.byte_level) {
    find_words();
  } else {
    find_parts(merges);
  }
}

void Bpe::find_words() {
  for (std::uint32_t id = 0; settings_.ignore_merges && id < vocabulary_.id_end(); ++id) {
    const auto* token = vocabulary_.token(id);
    if (token == nullptr) continue;
    if (auto bytes = bytes_of_token(*token)) words_.emplace(std::move(*bytes), id);
  }
}

/// Adds a token that is a single character or byte, between the prefix and suffix of its position.
void Bpe::add_symbol(std::string_view token, std::uint32_t id, unsigned position) {
  if ((position & 1U) != 0) {
    if (!token.starts_with(settings_.continuing_prefix)) return;
    token.remove_prefix(settings_.continuing_prefix.size());
  }
  if ((position & 2U) != 0) {
    if (!token.ends_with(settings_.end_suffix)) return;
    token.remove_suffix(settings_.end_suffix.size());
  }
  std::size_t end = 0;
  if (token.empty() || is_tail(token[0])) return;
  const auto code = next_character(token, end);
  if (end != token.size()) return;
  if (!settings_.byte_level) return symbols_[position].set(code, id);
  if (const auto byte = bytes_of_token(token)) {
    symbols_[position].low[static_cast<unsigned char>(byte->front())] = id;
  }
}

void Bpe::add_merges(const Merges& merges, const std::string& file) {
  const auto prefix = settings_.continuing_prefix.size();
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    if (right.size() < prefix) {
      fail(file,
           fmt::format("merge {} (from 0) continues a word without '{}'", rank, settings_.continuing_prefix));
    }
    merges_.add(require(left, rank, file), require(right, rank, file),
                {static_cast<std::uint32_t>(rank), require(left + right.substr(prefix), rank, file)});
  }
}

/// Finds where a word can be split into parts that are tokenized independently.
///
/// Models without a pre-tokenizer (SentencePiece's BPE) have one "word" per text, and merging takes time that
/// grows faster than its length. But merges never cross most gaps between characters. A token that spans the
/// gap between characters x and y was made by a merge of a token that ends with x and one that begins with y.
/// If no merge of the table has such a pair, no token ever spans the gap, and what is left of it cannot
/// affect what is right of it: merges apply by rank within each side, in the same order as in the whole. So
/// the set of (last character of left, first character of right) over all merges (`neighbours_`) says where
/// to split; part_end() looks pairs up.
///
///     merges        a b, ab c        neighbours_   (a, b), (b, c)
///     word          a b c a b        split at      a b c | a b        (c, a) is in no merge
///
/// Four things break the argument. A continuing prefix or end suffix depends on the position in the word, and
/// unknown characters without any token shift all offsets: such models have no parts at all. An unknown
/// character may be fused with later ones, so there is no split next to one. And with ignore_merges, a word
/// that is a token remains whole.
void Bpe::find_parts(const Merges& merges) {
  const bool all_bytes = settings_.byte_fallback && std::ranges::count(fallback_, kNone) == 0;
  has_parts_ =
      settings_.continuing_prefix.empty() && settings_.end_suffix.empty() && (unknown_ != kNone || all_bytes);
  if (!has_parts_) return;
  neighbours_ = MergeTable(merges.size());
  for (const auto& [left, right] : merges) {
    if (left.empty() || right.empty()) continue;
    auto last = left.size();
    std::size_t first = 0;
    neighbours_.add(previous_character(left, last), next_character(right, first), {.rank = 0});
  }
}

std::uint32_t Bpe::require(const std::string& token, std::size_t number, const std::string& file) const {
  const auto id = vocabulary_.id(token);
  if (id) return *id;
  fail(file, fmt::format("merge {} (from 0) needs the token '{}', which the vocabulary does not have", number,
                         token.substr(0, 100)));
}

const Bpe::Symbols& Bpe::symbols(bool is_first, bool is_last) const noexcept {
  return symbols_[(is_first ? 0U : 1U) | (is_last ? 2U : 0U)];
}

std::size_t Bpe::part_end(std::string_view word, std::size_t begin) const {
  if (!has_parts_ || (begin == 0 && settings_.ignore_merges && vocabulary_.id(word))) return word.size();
  const auto& known = symbols_[0];
  auto position = begin;
  for (auto left = next_character(word, position); position < word.size();) {
    const auto end = position;
    const auto right = next_character(word, position);
    if (neighbours_.find(left, right).rank == MergeTable::kNever && known.find(left) != kNone &&
        known.find(right) != kNone) {
      return end;
    }
    left = right;
  }
  return word.size();
}

void Bpe::tokenize(std::string_view word, Tokens& tokens) const {
  tokens.clear();
  if (settings_.ignore_merges) {
    const auto length = static_cast<std::uint32_t>(word.size());
    if (!settings_.byte_level) {
      if (const auto id = vocabulary_.id(word)) return tokens.push_back({*id, 0, length});
    } else if (const auto found = words_.find(std::string(word)); found != words_.end()) {
      return tokens.push_back({found->second, 0, length});
    }
  }
  tokenize_part(word, tokens);
}

void Bpe::tokenize_part(std::string_view word, Tokens& tokens) const {
  tokens.clear();
  if (settings_.byte_level) {
    begin_bytes(word, tokens);
  } else {
    begin_characters(word, tokens);
  }
  if (tokens.size() <= kShort) {
    merge_short(tokens);
  } else {
    merge_long(tokens);
  }
}

void Bpe::begin_bytes(std::string_view word, Tokens& tokens) const {
  for (std::uint32_t position = 0; position < word.size(); ++position) {
    const auto& known = symbols(position == 0, position + 1 == word.size());
    tokens.push_back({known.low[static_cast<unsigned char>(word[position])], position, position + 1});
  }
}

/// Exactly as the Python package does: unknown characters are kept until the next known one, even across byte
/// tokens, and the offsets of skipped characters go to the tokens that follow.
void Bpe::begin_characters(std::string_view word, Tokens& tokens) const {
  std::uint32_t done = 0;
  std::uint32_t waiting = 0;
  const auto add = [&](std::uint32_t id, std::uint32_t length) {
    tokens.push_back({id, done, done + length});
    done += length;
  };
  for (std::size_t position = 0; position < word.size();) {
    const auto begin = position;
    const auto code = next_character(word, position);
    const auto length = static_cast<std::uint32_t>(position - begin);
    const auto id = symbols(begin == 0, position == word.size()).find(code);
    if (id == kNone && fall_back(word.substr(begin, length), tokens, done)) continue;
    if (id == kNone && unknown_ == kNone && !settings_.unknown_token) continue;
    if (id == kNone && unknown_ == kNone) fail_unknown();
    if (waiting > 0 && (id != kNone || !settings_.fuse_unknown)) {
      add(unknown_, waiting);
      waiting = 0;
    }
    if (id != kNone) {
      add(id, length);
    } else {
      waiting += length;
    }
  }
  if (waiting > 0) add(unknown_, waiting);
}

void Bpe::fail_unknown() const {
  fail(file_,
       fmt::format("the text has a character without a token, and the vocabulary has no '{}', its unk_token",
                   settings_.unknown_token->substr(0, 100)));
}

bool Bpe::fall_back(std::string_view character, Tokens& tokens, std::uint32_t& length) const {
  const auto token = [&](char byte) { return fallback_[static_cast<unsigned char>(byte)]; };
  if (!settings_.byte_fallback) return false;
  if (std::ranges::any_of(character, [&](char byte) { return token(byte) == kNone; })) return false;
  for (const char byte : character) {
    tokens.push_back({token(byte), length, length + 1});
    ++length;
  }
  return true;
}

void Bpe::merge_short(Tokens& tokens) const {
  std::array<MergeTable::Merge, kShort> merges;
  auto count = tokens.size();
  const auto look = [&](std::size_t position) {
    merges[position] = merges_.find(tokens[position].id, tokens[position + 1].id);
  };
  for (std::size_t position = 0; position + 1 < count; ++position) look(position);
  while (count > 1) {
    auto* const end = merges.data() + count - 1;
    auto* const found = std::min_element(
        merges.data(), end, [](const auto& left, const auto& right) { return left.rank < right.rank; });
    if (found->rank == MergeTable::kNever) break;
    const auto best = static_cast<std::size_t>(found - merges.data());
    tokens[best] = {merges[best].id, tokens[best].begin, tokens[best + 1].end};
    --count;
    std::copy(tokens.begin() + static_cast<std::ptrdiff_t>(best) + 2, tokens.end(),
              tokens.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    tokens.pop_back();
    for (auto position = best + 1; position + 1 < count; ++position) merges[position] = merges[position + 1];
    if (best + 1 < count) look(best);
    if (best > 0) look(best - 1);
  }
}

void Bpe::merge_long(Tokens& tokens) const { MergeQueue(merges_, tokens).run(); }

std::optional<std::pair<std::string, std::string>> split_merge(std::string_view text) {
  const auto blank = text.find(' ');
  if (blank == std::string_view::npos || text.find(' ', blank + 1) != std::string_view::npos)
    return std::nullopt;
  return std::pair(std::string(text.substr(0, blank)), std::string(text.substr(blank + 1)));
}

bool has_all_bytes(const Node& node) {
  const auto prefix = node.text("continuing_subword_prefix", "");
  const auto suffix = node.text("end_of_word_suffix", "");
  if (node.flag("byte_fallback", false)) return false;
  if (node.flag("ignore_merges", false) && !(prefix.empty() && suffix.empty())) return false;
  const auto& vocabulary = node["vocab"].object();
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (is_never_text(byte)) continue;
    std::string token;
    append_utf8(token, byte_characters()[byte]);
    for (const auto& written : {token, prefix + token, token + suffix, prefix + token + suffix}) {
      if (!vocabulary.contains(written)) return false;
    }
  }
  return true;
}

std::unique_ptr<const Model> make_bpe(const Node& node, bool byte_level) {
  if (const auto dropout = node.find("dropout"); dropout && !dropout->is_zero()) {
    dropout->fail("the model's 'dropout' is not supported");
  }
  Bpe::Settings settings{.byte_level = byte_level,
                         .ignore_merges = node.flag("ignore_merges", false),
                         .byte_fallback = node.flag("byte_fallback", false),
                         .fuse_unknown = node.flag("fuse_unk", false),
                         .continuing_prefix = node.text("continuing_subword_prefix", ""),
                         .end_suffix = node.text("end_of_word_suffix", "")};
  if (const auto unknown = node.find("unk_token")) settings.unknown_token = unknown->text();
  return std::make_unique<Bpe>(read_vocabulary(node["vocab"]), read_merges(node["merges"]),
                               std::move(settings), node.file());
}

}  // namespace lockstep::tokenizer
