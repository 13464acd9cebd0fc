#include "tokenizers/added_tokens.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "tokenizers/unicode.hpp"
#include "tokenizers/utf8.hpp"

namespace lockstep::tokenizer {
namespace {

bool ends_with_word(std::string_view text) {
  auto position = text.size();
  return !text.empty() && Unicode::get().is(previous_character(text, position), kIsWord);
}

bool starts_with_word(std::string_view text) {
  std::size_t position = 0;
  return !text.empty() && Unicode::get().is(next_character(text, position), kIsWord);
}

std::size_t before_spaces(std::string_view text, std::size_t end, std::size_t least) {
  while (end > least) {
    auto position = end;
    if (!Unicode::get().is(previous_character(text, position), kIsSpace)) break;
    end = position;
  }
  return end;
}

std::size_t behind_spaces(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    auto position = begin;
    if (!Unicode::get().is(next_character(text, position), kIsSpace)) break;
    begin = position;
  }
  return begin;
}

AddedToken read_added_token(const Node& node) {
  AddedToken token;
  token.content = node["content"].text();
  token.id = node["id"].number();
  token.single_word = node.flag("single_word", false);
  token.lstrip = node.flag("lstrip", false);
  token.rstrip = node.flag("rstrip", false);
  token.special = node.flag("special", false);
  token.normalized = node.flag("normalized", !token.special);
  return token;
}

}  // namespace

void TokenFinder::add(const std::string& text, const AddedToken& token) {
  trie_.add(text, static_cast<std::uint32_t>(tokens_.size()));
  begins_[static_cast<unsigned char>(text.front())] = true;
  tokens_.push_back(token);
}

bool TokenFinder::reaches(std::string_view text, std::size_t from, const AddedToken& token,
                          Found& found) const {
  if (token.single_word &&
      (ends_with_word(text.substr(0, found.begin)) || starts_with_word(text.substr(found.end)))) {
    return false;
  }
  // If the previous token took its trailing spaces, a token that begins with a space may begin before `from`.
  if (token.lstrip) found.begin = std::max(before_spaces(text, found.begin, 0), from);
  if (token.rstrip) found.end = behind_spaces(text, found.end);
  return true;
}

void TokenFinder::split(std::string_view text, const Part& part) const {
  std::size_t done = 0;
  for (std::size_t position = 0; position < text.size() && !tokens_.empty();) {
    if (!begins_[static_cast<unsigned char>(text[position])]) {
      ++position;
      continue;
    }
    const auto match = trie_.longest(text.substr(position));
    if (match.length == 0) {
      ++position;
      continue;
    }
    const auto& token = tokens_[match.value];
    Found found{position, position + match.length};
    position += match.length;
    if (splits_special_ && token.special) continue;
    if (!reaches(text, done, token, found) || found.begin >= found.end) continue;
    if (done < found.begin) part(done, found.begin, nullptr);
    part(found.begin, found.end, &token);
    done = found.end;
  }
  if (done < text.size()) part(done, text.size(), nullptr);
}

AddedTokens::AddedTokens(const Node& node, const Vocabulary& vocabulary, const Normalizer* normalizer) {
  const auto count = node.size();
  auto next_id = static_cast<std::uint32_t>(vocabulary.size());
  for (std::size_t index = 0; index < count; ++index) {
    const auto element = node.element(index);
    auto token = read_added_token(element);
    check_token(element, token, vocabulary.id(token.content), next_id);
    token.shown = token.normalized ? tokenizer::normalized(normalizer, token.content) : token.content;
    if (token.shown.empty()) element.fail("nothing is left of the added token once normalized");
    next_id = std::max(next_id, token.id + 1);
    by_id_.emplace(token.id, tokens.size());
    by_content_.emplace(token.content, tokens.size());
    tokens.push_back(std::move(token));
  }
  fill(true);
  fill(false);
}

void AddedTokens::check_token(const Node& node, const AddedToken& token, std::optional<std::uint32_t> known,
                              std::uint32_t next) const {
  const auto name = fmt::format("the added token '{}' ", token.content.substr(0, 100));
  if (token.content.empty()) node.fail("an added token without text");
  if (by_content_.contains(token.content)) node.fail(name + "is given twice");
  if (by_id_.contains(token.id)) node.fail(name + "has the id of another added token");
  if (token.id == known.value_or(next)) return;
  node.fail(fmt::format(
      "{}has the id {}, but {}{}", name, token.id,
      known ? "the vocabulary gives it " : "the next id after the vocabulary and the other added tokens is ",
      known.value_or(next)));
}

/// Special tokens are added first: if two have the same form, the one that was added first is found.
void AddedTokens::fill(bool special) {
  for (const auto& token : tokens) {
    if (token.special == special) (token.normalized ? normalized : raw).add(token.shown, token);
  }
}

void AddedTokens::split_special_tokens() {
  raw.split_special_tokens();
  normalized.split_special_tokens();
}

bool AddedTokens::is_special(const AddedToken& token) const noexcept {
  const auto* const same = find(token.shown);
  return same != nullptr && same->special;
}

const AddedToken* AddedTokens::find(std::uint32_t id) const noexcept {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens[found->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const noexcept {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : &tokens[found->second];
}

}  // namespace lockstep::tokenizer
