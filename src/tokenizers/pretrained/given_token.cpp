#include "tokenizers/pretrained/given_token.hpp"

#include <algorithm>

namespace lockstep::tokenizer {

GivenToken read_given_token(const Node& node) {
  if (node.is_text()) return {.content = node.text()};
  GivenToken token{.content = node["content"].text(),
                   .is_text = false,
                   .single_word = node.flag("single_word", false),
                   .lstrip = node.flag("lstrip", false),
                   .rstrip = node.flag("rstrip", false),
                   .special = node.flag("special", false)};
  if (const auto normalized = node.find("normalized")) token.normalized = normalized->flag();
  return token;
}

void AddedList::take(const Node& added_tokens) {
  const auto count = added_tokens.size();
  for (std::size_t index = 0; index < count; ++index) {
    const auto node = added_tokens.element(index);
    auto token = read_given_token(node);
    const auto id = node["id"].number();
    if (contains(token.content))
      node.fail("the added token '" + token.content.substr(0, 100) + "' is given twice");
    indices_.emplace(token.content, entries_.size());
    largest_ = std::max(largest_.value_or(id), id);
    entries_.push_back({std::move(token), id});
  }
}

void AddedList::add(GivenToken token) {
  if (token.content.empty()) return;
  if (const auto found = indices_.find(token.content); found != indices_.end()) {
    entries_[found->second].token = std::move(token);
    return;
  }
  const auto id = vocabulary_.id(token.content).value_or(next_id());
  indices_.emplace(token.content, entries_.size());
  largest_ = std::max(largest_.value_or(id), id);
  entries_.push_back({std::move(token), id});
}

std::uint32_t AddedList::next_id() const {
  const auto words = static_cast<std::uint32_t>(vocabulary_.size());
  return largest_ && (*largest_ >= words || words == 0) ? *largest_ + 1 : words;
}

std::optional<std::uint32_t> AddedList::id(std::string_view content) const {
  if (const auto found = indices_.find(std::string(content)); found != indices_.end())
    return entries_[found->second].id;
  return vocabulary_.id(content);
}

nlohmann::json AddedList::document() const {
  auto sorted = entries_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Entry& a, const Entry& b) { return a.id < b.id; });
  auto list = nlohmann::json::array();
  for (const auto& [token, id] : sorted) {
    list.push_back({{"id", id},
                    {"content", token.content},
                    {"single_word", token.single_word},
                    {"lstrip", token.lstrip},
                    {"rstrip", token.rstrip},
                    {"normalized", token.normalized.value_or(!token.special)},
                    {"special", token.special}});
  }
  return list;
}

}  // namespace lockstep::tokenizer
