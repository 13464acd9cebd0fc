#include "tokenizers/chat_messages.hpp"

#include <fmt/core.h>

#include "lockstep/core/error.hpp"
#include "tokenizers/jinja/characters.hpp"

namespace lockstep::tokenizer {
namespace {

using Json = nlohmann::ordered_json;

/// As in transformers: templates that trim messages take the blank away.
constexpr std::string_view kMark = "CONTINUE_FINAL_MESSAGE_TAG ";

/// Names of a message's reasoning, the first of which most templates read.
constexpr const char* kReasoning[] = {"reasoning_content", "thinking", "reasoning"};

Json with_reasoning(const Json& message) {
  const Json* reasoning = nullptr;
  for (const auto* name : kReasoning) {
    if (reasoning == nullptr && message.contains(name)) reasoning = &message[name];
  }
  if (reasoning == nullptr) return message;
  Json named = {{"thinking", *reasoning}};
  for (const auto& [name, value] : message.items()) named[name] = value;
  named["reasoning_content"] = *reasoning;
  return named;
}

}  // namespace

Json prepare_messages(const Json& messages) {
  if (!messages.is_array())
    throw UsageError(
        "apply_chat_template: the messages must be a list of objects with 'role' and 'content'.");
  if (messages.empty()) throw UsageError("apply_chat_template: there are no messages: give at least one.");
  auto prepared = Json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object()) {
      throw UsageError(
          fmt::format("apply_chat_template: message {} must be an object with 'role' and 'content', not {}.",
                      i, messages[i].type_name()));
    }
    auto message = Json::object();
    for (const auto& [name, value] : messages[i].items()) {
      if (!value.is_null()) message[name] = value;
    }
    prepared.push_back(with_reasoning(message));
  }
  return prepared;
}

std::string mark_final_message(Json& messages) {
  auto& message = messages.back();
  if (!message.contains("content"))
    throw UsageError("continue_final_message: the last message has no content to continue.");
  auto& content = message["content"];
  if (content.is_string()) {
    const auto text = content.get<std::string>();
    content = text + std::string(kMark);
    return text;
  }
  for (std::size_t i = content.is_array() ? content.size() : 0; i-- > 0;) {
    if (!content[i].is_object() || !content[i].contains("text") || !content[i]["text"].is_string()) continue;
    const auto text = content[i]["text"].get<std::string>();
    content[i]["text"] = text + std::string(kMark);
    return text;
  }
  throw UsageError("continue_final_message: the last message has no text to continue.");
}

std::string cut_at_mark(const std::string& rendered, const std::string& final_text) {
  const auto position = rendered.rfind(jinja::strip_space(kMark));
  if (position == std::string::npos || rendered.find(jinja::strip_space(final_text)) == std::string::npos) {
    throw DataError(
        "continue_final_message: the template leaves out the last message, or parts of it: it cannot be "
        "continued.");
  }
  const auto text = rendered.substr(0, position);
  if (rendered.compare(position, kMark.size(), kMark) == 0) return text;
  return std::string(jinja::strip_space(text, jinja::Ends::right));
}

}  // namespace lockstep::tokenizer
