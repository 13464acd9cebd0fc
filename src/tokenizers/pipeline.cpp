#include "tokenizers/pipeline.hpp"

#include <fmt/core.h>

#include <limits>

#include "lockstep/core/error.hpp"
#include "tokenizers/unicode.hpp"

namespace lockstep::tokenizer {
namespace {

/// The space as written in byte-level vocabularies.
constexpr char32_t kWrittenBlank = 0x120;

bool is_blank(char32_t code) { return code == kWrittenBlank || Unicode::get().is(code, kIsSpace); }

std::uint16_t capped(std::size_t count) {
  return static_cast<std::uint16_t>(std::min<std::size_t>(count, std::numeric_limits<std::uint16_t>::max()));
}

/// The number of blanks at both ends of a token's text.
Draft::Blanks blanks_of(std::string_view text) {
  std::size_t leading = 0;
  for (std::size_t position = 0; position < text.size() && is_blank(next_character(text, position));)
    ++leading;
  std::size_t trailing = 0;
  for (std::size_t position = text.size(); position > 0 && is_blank(previous_character(text, position));)
    ++trailing;
  return {capped(leading), capped(trailing)};
}

std::size_t checked_characters(std::string_view text) {
  if (text.size() > std::numeric_limits<std::int32_t>::max()) {
    throw DataError(fmt::format(
        "a text of {} bytes is too long to be encoded: 2^31 - 1 is the limit. Cut it up.", text.size()));
  }
  return require_utf8(text, "the text");
}

/// Encodes one text.
class Run {
 public:
  Run(const Pipeline& pipeline, Workspace& workspace, bool return_tokens, Draft& draft)
      : pipeline_(pipeline),
        workspace_(workspace),
        draft_(draft),
        return_tokens_(return_tokens),
        trims_(pipeline.post_processor.trims()) {}

  void encode(std::string_view text) {
    const auto characters = checked_characters(text);
    reserve(text.size());
    const Stretch whole = numbered(text, characters, workspace_.characters);
    if (pipeline_.added.raw.empty()) return normalize(whole);
    pipeline_.added.raw.split(text, [&](std::size_t begin, std::size_t end, const AddedToken* token) {
      const auto part = whole.part(begin, end);
      if (token == nullptr) {
        normalize(part);
      } else {
        put(*token, part);
      }
    });
  }

 private:
  void reserve(std::size_t bytes) {
    auto& encoding = draft_.encoding;
    const auto tokens = bytes / 4 + 8;
    encoding.ids.reserve(tokens);
    encoding.offsets.reserve(tokens);
    encoding.word_ids.reserve(tokens);
  }

  void normalize(const Stretch& part) {
    if (pipeline_.normalizer == nullptr) return find_normalized(part);
    const auto first = part.begins == nullptr ? part.first : part.begins[0];
    pipeline_.normalizer->normalize(part.text, first, workspace_.normalized);
    find_normalized(workspace_.normalized.stretch());
  }

  void find_normalized(const Stretch& part) {
    if (pipeline_.added.normalized.empty()) return split(part);
    pipeline_.added.normalized.split(part.text,
                                     [&](std::size_t begin, std::size_t end, const AddedToken* token) {
                                       const auto piece = part.part(begin, end);
                                       if (token == nullptr) {
                                         split(piece);
                                       } else {
                                         put(*token, piece);
                                       }
                                     });
  }

  void split(const Stretch& part) {
    if (part.text.empty()) return;
    auto& split = workspace_.split;
    pipeline_.pre_tokenizer.split(part, split);
    for (const auto& word : split.words) tokenize(split.text, word);
  }

  void tokenize(const Stretch& text, const Word& word) {
    const auto whole = text.text.substr(word.begin, word.end - word.begin);
    for (std::size_t begin = 0; begin < whole.size();) {
      const auto end = WordCache::fits(whole) ? whole.size() : pipeline_.model->part_end(whole, begin);
      put_tokens(whole.substr(begin, end - begin), text.part(word.begin + begin, word.begin + end),
                 end - begin < whole.size());
      begin = end;
    }
    ++word_;
  }

  void put_tokens(std::string_view part, const Stretch& text, bool is_part) {
    for (const auto& token : tokens_of(part, is_part)) {
      put(token.id, text.offsets(token.begin, token.end));
      if (return_tokens_ || trims_) put_text(pipeline_.model->text(token, part));
    }
  }

  std::span<const Token> tokens_of(std::string_view word, bool is_part) {
    const auto find = [&]() -> std::span<const Token> {
      if (is_part) {
        pipeline_.model->tokenize_part(word, workspace_.tokens);
      } else {
        pipeline_.model->tokenize(word, workspace_.tokens);
      }
      return workspace_.tokens;
    };
    if (!WordCache::fits(word)) return find();
    const auto key = WordCache::key(word, is_part);
    if (const auto known = workspace_.cache.find(key); !known.empty()) return known;
    workspace_.cache.keep(key, find());
    return workspace_.tokens;
  }

  void put(const AddedToken& token, const Stretch& part) {
    put(token.id, part.offsets(0, part.text.size()));
    put_text(part.text);
    ++word_;
  }

  void put(std::uint32_t id, const Offsets& offsets) {
    auto& encoding = draft_.encoding;
    encoding.ids.push_back(id);
    encoding.offsets.push_back(offsets);
    encoding.word_ids.push_back(word_);
  }

  void put_text(std::string_view token) {
    if (return_tokens_) draft_.encoding.tokens.emplace_back(token);
    if (trims_) draft_.blanks.push_back(blanks_of(token));
  }

  const Pipeline& pipeline_;
  Workspace& workspace_;
  Draft& draft_;
  bool return_tokens_;
  bool trims_;
  std::int32_t word_ = 0;
};

}  // namespace

Draft Pipeline::encode(std::string_view text, int sequence, bool return_tokens, Workspace& workspace) const {
  Draft draft;
  Run(*this, workspace, return_tokens, draft).encode(text);
  auto& encoding = draft.encoding;
  const auto count = encoding.ids.size();
  encoding.type_ids.assign(count, sequence);
  encoding.sequence_ids.assign(count, sequence);
  encoding.attention_mask.assign(count, 1);
  encoding.special_tokens_mask.assign(count, 0);
  return draft;
}

}  // namespace lockstep::tokenizer
