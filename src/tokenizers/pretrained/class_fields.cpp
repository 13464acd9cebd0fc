#include "tokenizers/pretrained/class_fields.hpp"

namespace lockstep::tokenizer {

GivenToken ClassFields::given(const Node& node) const {
  auto token = read_given_token(node);
  const auto found = known_.find(token.content);
  return found == known_.end() ? token : found->second;
}

std::string ClassFields::token(const char* name, GivenToken otherwise) {
  if (!fields_.contains(name)) {
    if (!otherwise.content.empty()) tokens_[name] = std::move(otherwise);
    return text(name);
  }
  take(name);
  if (const auto found = tokens_.find(name); found != tokens_.end() && found->second.is_text) {
    auto token = std::move(otherwise);
    token.content = found->second.content;
    found->second = std::move(token);
  }
  return text(name);
}

void ClassFields::take(const std::string& name) {
  if (const auto node = this->node().find(name)) tokens_[name] = given(*node);
}

const GivenToken* ClassFields::find(const std::string& name) const {
  const auto found = tokens_.find(name);
  return found == tokens_.end() ? nullptr : &found->second;
}

std::string ClassFields::text(const std::string& name) const {
  const auto* token = find(name);
  return token == nullptr ? "" : token->content;
}

}  // namespace lockstep::tokenizer
