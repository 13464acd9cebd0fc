#include "tokenizers/pretrained/folder_templates.hpp"

#include <filesystem>

#include "tokenizers/json_file.hpp"

namespace lockstep::tokenizer {
namespace {

std::map<std::string, std::string> templates_in_files(const ModelFolder& folder) {
  std::map<std::string, std::string> templates;
  const auto single = folder.file("chat_template.jinja");
  if (std::filesystem::exists(single)) templates["default"] = read_text_file(single);
  const auto more = folder.file("additional_chat_templates");
  if (!std::filesystem::is_directory(more)) return templates;
  for (const auto& entry : std::filesystem::directory_iterator(more)) {
    if (entry.path().extension() == ".jinja")
      templates[entry.path().stem().string()] = read_text_file(entry.path());
  }
  return templates;
}

}  // namespace

std::map<std::string, std::string> chat_templates_of(const ModelFolder& folder) {
  auto templates = templates_in_files(folder);
  if (!templates.empty() || !folder.tokenizer_config.is_object()) return templates;
  const auto field = folder.tokenizer_config.find("chat_template");
  if (field == folder.tokenizer_config.end() || field->is_null()) return templates;
  if (field->is_string()) return {{"default", field->get<std::string>()}};
  const Node config(folder.tokenizer_config, folder.file("tokenizer_config.json").string());
  if (!field->is_array()) config.fail("chat_template is neither a text nor a list of templates");
  for (const auto& one : *field) {
    const bool fits = one.is_object() && one.contains("name") && one["name"].is_string() &&
                      one.contains("template") && one["template"].is_string();
    if (!fits) config.fail("chat_template has an element that is not a name and a template");
    templates[one["name"].get<std::string>()] = one["template"].get<std::string>();
  }
  return templates;
}

}  // namespace lockstep::tokenizer
