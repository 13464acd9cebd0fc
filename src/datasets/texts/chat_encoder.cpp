#include "datasets/texts/chat_encoder.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <utility>

#include "datasets/table/json_feature.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/datasets/tokenize.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json parsed(const std::string& text) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    throw DataError(fmt::format("what should be JSON is not: {}", error.what()));
  }
}

/// Of a list's element or a structure's field; what other features hold is taken as it is stored.
const Feature& child_of(const Feature& feature, std::size_t index) {
  static const Feature plain;
  return index < feature.children().size() ? feature.children()[index] : plain;
}

Json json_of(const Value& value, const Feature& feature) {
  if (const auto* list = std::get_if<Value::List>(&value.variant())) {
    auto json = Json::array();
    for (const auto& item : *list) json.push_back(json_of(item, child_of(feature, 0)));
    return json;
  }
  if (const auto* fields = std::get_if<Value::Fields>(&value.variant())) {
    auto json = Json::object();
    for (std::size_t i = 0; i < fields->size(); ++i)
      json[(*fields)[i].first] = json_of((*fields)[i].second, child_of(feature, i));
    return json;
  }
  if (const auto* text = std::get_if<std::string>(&value.variant()))
    return table::is_json(feature) ? parsed(*text) : Json(*text);
  if (const auto* flag = std::get_if<bool>(&value.variant())) return *flag;
  if (const auto* number = std::get_if<std::int64_t>(&value.variant())) return *number;
  if (const auto* number = std::get_if<std::uint64_t>(&value.variant())) return *number;
  if (const auto* number = std::get_if<double>(&value.variant())) return *number;
  if (value.is_null()) return nullptr;
  throw DataError("a conversation holds bytes: give texts.");
}

}  // namespace

Json fields_of_row(const Value& row, const Features& features) {
  Json fields = json_of(row, Feature::struct_(features));
  if (fields.contains("conversations")) fields["messages"] = fields["conversations"];
  return fields;
}

ArrowDataset columns_to_read(const ArrowDataset& rows, std::vector<std::string> names) {
  names.insert(names.end(), {"tools", "chat_template_kwargs"});
  std::erase_if(names, [&](const std::string& name) { return !rows.has_column(name); });
  return rows.select_columns(names);
}

Json with_usual_names(Json messages) {
  if (!messages.is_array()) return messages;
  for (auto& message : messages) {
    if (!message.is_object()) continue;
    for (const auto& [old, name] : {std::pair("from", "role"), std::pair("value", "content")}) {
      if (!message.contains(old) || message[old].is_null()) continue;
      message[name] = message[old];
      message.erase(old);
    }
  }
  return messages;
}

void cut_tokens(TokenIds& list, std::int64_t max_length, bool keep_end) {
  const auto length = static_cast<std::size_t>(max_length);
  if (length == 0 || list.size() <= length) return;
  const auto surplus = static_cast<std::ptrdiff_t>(list.size() - length);
  if (keep_end) {
    list.erase(list.begin(), list.begin() + surplus);
  } else {
    list.resize(length);
  }
}

std::string in_row(std::int64_t number, const std::exception& error) {
  return fmt::format("row {}: {}", number, error.what());
}

ChatEncoder::ChatEncoder(const std::filesystem::path& tokenizer,
                         const tokenizer::PretrainedOptions& pretrained, std::string chat_template)
    : tokenizer_(load_tokenizer(tokenizer, pretrained)), chat_template_(std::move(chat_template)) {}

tokenizer::Chat ChatEncoder::encode_chat(const Json& messages, const Json& row,
                                         const ChatTokensOptions& options) const {
  tokenizer::ChatOptions chat;
  chat.chat_template = chat_template_;
  chat.add_generation_prompt = options.begins_answer;
  chat.return_assistant_tokens_mask = options.with_mask;
  Json tools = row.value("tools", Json());
  if (tools.is_string()) tools = Json::parse(tools.get<std::string>(), nullptr, false);
  if (tools.is_discarded()) throw DataError("'tools' is a text that is not JSON.");
  const Json variables = row.value("chat_template_kwargs", Json());
  if (!tools.is_null()) chat.tools = &tools;
  if (!variables.is_null()) chat.variables = &variables;
  return tokenizer_.apply_chat_template(messages, chat);
}

TokenIds ChatEncoder::encode_text(const std::string& text) const { return tokenizer_.encode(text).ids; }

std::size_t ChatEncoder::begin_of_completion(const TokenIds& prompt, const TokenIds& whole,
                                             std::int64_t row) const {
  const auto shorter = static_cast<std::ptrdiff_t>(std::min(prompt.size(), whole.size()));
  const auto differ = std::mismatch(prompt.begin(), prompt.begin() + shorter, whole.begin()).first;
  static std::atomic<bool> was_said = false;
  if (differ == prompt.end() || was_said) return static_cast<std::size_t>(differ - prompt.begin());
  const auto shown = std::min<std::ptrdiff_t>(prompt.end() - differ, 20);
  // Empty: tokens that the tokenizer puts behind every text.
  const std::string end = tokenizer_.decode({differ, differ + shown});
  if (!end.empty() && !was_said.exchange(true)) {
    std::cerr
        << fmt::format(
               "lockstep: warning: row {}: the tokens of the prompt alone end in '{}', which the tokens of "
               "prompt and completion together do not have there: the template shows a prompt alone in "
               "another way, or tokens join over the boundary. The completion is taken to begin where they "
               "differ, so the model learns to go on from another text than it will be given. End prompts "
               "at a boundary of tokens (before a space), or use a template that shows both in the same "
               "way. (Reported once.)\n",
               row, end)
        << std::flush;
  }
  return static_cast<std::size_t>(differ - prompt.begin());
}

std::string ChatEncoder::with_end(const std::string& text) const {
  const auto& tokens = tokenizer_.settings().special_tokens;
  const auto end = tokens.find("eos_token");
  if (end == tokens.end())
    throw UsageError(
        "the tokenizer has no eos_token, which ends texts: name one in its tokenizer_config.json.");
  return text.ends_with(end->second) ? text : text + end->second;
}

}  // namespace lockstep
