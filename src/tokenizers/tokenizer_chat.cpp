#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/tokenizers/tokenizer.hpp"
#include "tokenizers/chat_messages.hpp"
#include "tokenizers/tokenizer_parts.hpp"

namespace lockstep {
namespace {

using tokenizer::ChatOptions;
using tokenizer::Encoding;
using Json = nlohmann::ordered_json;

/// The source of a template, and its name in errors.
std::pair<std::string, std::string> chosen_template(const std::map<std::string, std::string>& templates,
                                                    const ChatOptions& options) {
  const auto named = [&](const std::string& name) {
    return std::pair(templates.at(name), fmt::format("the chat template '{}'", name));
  };
  if (templates.contains(options.chat_template)) return named(options.chat_template);
  if (!options.chat_template.empty()) return {options.chat_template, "the chat template"};
  if (options.tools != nullptr && templates.contains("tool_use")) return named("tool_use");
  if (templates.contains("default")) return {templates.at("default"), "the chat template"};
  if (templates.empty()) {
    throw UsageError(
        "apply_chat_template: the tokenizer's folder has no chat template: put a chat_template.jinja into "
        "it, or give one as "
        "ChatOptions::chat_template.");
  }
  std::vector<std::string> names;
  for (const auto& [name, source] : templates) names.push_back(name);
  throw UsageError(
      fmt::format("apply_chat_template: the tokenizer has no template 'default': choose one of {}.",
                  fmt::join(names, ", ")));
}

void require_compatible(const ChatOptions& options) {
  if (!options.continue_final_message) return;
  if (options.add_generation_prompt) {
    throw UsageError(
        "apply_chat_template: continue_final_message goes on with the last message, and "
        "add_generation_prompt begins another: choose one.");
  }
  if (options.return_assistant_tokens_mask) {
    throw UsageError(
        "apply_chat_template: continue_final_message and return_assistant_tokens_mask exclude each other.");
  }
}

Json variables_of(Json messages, const std::map<std::string, std::string>& special_tokens,
                  const ChatOptions& options) {
  auto variables = Json::object();
  for (const auto& [name, token] : special_tokens) variables[name] = token;
  if (options.variables != nullptr) {
    if (!options.variables->is_object())
      throw UsageError("apply_chat_template: the template's variables must be an object.");
    variables.update(*options.variables);
  }
  variables["messages"] = std::move(messages);
  variables["tools"] = options.tools == nullptr ? Json() : *options.tools;
  variables["documents"] = options.documents == nullptr ? Json() : *options.documents;
  variables["add_generation_prompt"] = options.add_generation_prompt;
  return variables;
}

/// Marks every token that overlaps a span: both are in order.
std::vector<std::int64_t> masked(const Encoding& encoding, const std::vector<TextSpan>& spans) {
  std::vector<std::int64_t> mask(encoding.size(), 0);
  auto span = spans.begin();
  for (std::size_t i = 0; i < encoding.size(); ++i) {
    while (span != spans.end() && encoding.offsets[i].begin >= span->end) ++span;
    if (span == spans.end()) break;
    if (encoding.offsets[i].end > span->begin) mask[i] = 1;
  }
  return mask;
}

}  // namespace

tokenizer::Chat Tokenizer::apply_chat_template(const Json& messages, const ChatOptions& options) const {
  const auto [source, name] = chosen_template(parts_->settings.chat_templates, options);
  require_compatible(options);
  const auto chat_template = parts_->chat_templates->read(source, name);
  if (options.return_assistant_tokens_mask && !chat_template.marks_generation()) {
    throw UsageError(
        fmt::format("apply_chat_template: {} cannot tell what the assistant says: put {{% generation %}} and "
                    "{{% endgeneration %}} around "
                    "it in the template.",
                    name));
  }
  auto prepared = tokenizer::prepare_messages(messages);
  std::string final_text;
  if (options.continue_final_message) final_text = tokenizer::mark_final_message(prepared);
  auto rendered =
      chat_template.render(variables_of(std::move(prepared), parts_->settings.special_tokens, options));
  tokenizer::Chat chat;
  chat.text = options.continue_final_message ? tokenizer::cut_at_mark(rendered.text, final_text)
                                             : std::move(rendered.text);
  if (options.tokenize) chat.encoding = encode(chat.text, {.add_special_tokens = false});
  if (options.return_assistant_tokens_mask) chat.assistant_masks = masked(chat.encoding, rendered.generated);
  return chat;
}

bool Tokenizer::marks_generation(const ChatOptions& options) const {
  const auto [source, name] = chosen_template(parts_->settings.chat_templates, options);
  return parts_->chat_templates->read(source, name).marks_generation();
}

}  // namespace lockstep
