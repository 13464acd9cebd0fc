#include "tokenizers/pretrained/class_recipe.hpp"

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

nlohmann::json template_processing(const std::vector<TemplatePiece>& single,
                                   const std::vector<TemplatePiece>& pair, const IdOf& id) {
  nlohmann::json document = {{"type", "TemplateProcessing"}, {"special_tokens", nlohmann::json::object()}};
  const auto write = [&](const std::vector<TemplatePiece>& pieces) {
    auto list = nlohmann::json::array();
    for (const auto& [text, type] : pieces) {
      const bool is_text = text == "$A" || text == "$B";
      list.push_back({{is_text ? "Sequence" : "SpecialToken",
                       {{"id", is_text ? text.substr(1) : text}, {"type_id", type}}}});
      if (!is_text)
        document["special_tokens"][text] = {{"id", text}, {"ids", {id(text)}}, {"tokens", {text}}};
    }
    return list;
  };
  auto first = write(single);
  document["pair"] = write(pair);
  document["single"] = std::move(first);
  return document;
}

nlohmann::json bos_and_eos(const std::string& bos, const std::string& eos, const IdOf& id) {
  std::vector<TemplatePiece> single;
  std::vector<TemplatePiece> second;
  if (!bos.empty()) single.push_back({bos, 0}), second.push_back({bos, 1});
  single.push_back({"$A", 0});
  second.push_back({"$B", 1});
  if (!eos.empty()) single.push_back({eos, 0}), second.push_back({eos, 1});
  auto pair = single;
  pair.insert(pair.end(), second.begin(), second.end());
  return template_processing(single, pair, id);
}

}  // namespace lockstep::tokenizer
