#include "tokenizers/pretrained/class_arguments.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "lockstep/core/error.hpp"
#include "tokenizers/pretrained/class_recipe.hpp"

namespace lockstep::tokenizer {
namespace {

using Json = nlohmann::json;

std::uint32_t token_number(const Node& node, const std::string& id) {
  const bool digits = !id.empty() && id.size() < 10 &&
                      std::all_of(id.begin(), id.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits) node.fail(fmt::format("'{}' is not the id of a token", id.substr(0, 100)));
  return static_cast<std::uint32_t>(std::stoul(id));
}

}  // namespace

bool is_named_token(const std::string& name) {
  return std::find(std::begin(kNamedTokens), std::end(kNamedTokens), name) != std::end(kNamedTokens);
}

ClassArguments::ClassArguments(const ModelFolder& folder, const PretrainedOptions& options)
    : folder_(folder),
      file_(folder.file("tokenizer_config.json").string()),
      has_file_(!folder.tokenizer.is_null()) {
  if (!folder.tokenizer_config.is_null()) fields = folder.tokenizer_config;
  // The tokenizer.json is believed, whose post-processor has them.
  if (has_file_) fields.erase("add_bos_token"), fields.erase("add_eos_token");
  set(options);
  rename_extra_tokens();
  collect_own_tokens();
  if (fields.contains("added_tokens_decoder")) {
    read_decoder();
  } else {
    merge_special_tokens_map();
    read_added_tokens();
    read_tokens_of_file();
  }
  for (const auto& [id, token] : by_id) by_content[token.content] = token;
}

void ClassArguments::check_ids(const AddedList& added) const {
  for (const auto& [id, token] : by_id) {
    const auto got = added.id(token.content);
    if (token.content.empty() || got == id) continue;
    throw DataError(fmt::format(
        "{} gives the token '{}' the id {}, but by {} it is {}: the files do not belong together.", source_,
        token.content.substr(0, 100), id, has_file_ ? "tokenizer.json" : "the vocabulary",
        got ? std::to_string(*got) : "none"));
  }
}

void ClassArguments::set(const PretrainedOptions& options) {
  const auto put = [&](const std::string& name, const auto& value) {
    if (value) fields[name] = *value, set_.insert(name);
  };
  put("src_lang", options.src_lang);
  put("tgt_lang", options.tgt_lang);
  put("add_bos_token", options.add_bos_token);
  put("add_eos_token", options.add_eos_token);
  put("add_prefix_space", options.add_prefix_space);
  put("do_lower_case", options.do_lower_case);
  for (const auto& [name, token] : options.special_tokens) {
    if (!name.ends_with("_token")) {
      throw UsageError(fmt::format(
          "special_tokens: '{}' is not the name of a special token: these end in _token, like pad_token.",
          name));
    }
    put(name, std::optional(token));
  }
}

void ClassArguments::rename_extra_tokens() {
  const auto found = fields.find("additional_special_tokens");
  const auto extra = fields.find("extra_special_tokens");
  if (found == fields.end() || (extra != fields.end() && !extra->empty())) return;
  Json tokens = std::move(*found);
  fields.erase(found);
  fields["extra_special_tokens"] = std::move(tokens);
}

void ClassArguments::collect_own_tokens() {
  for (const auto& [name, value] : fields.items()) {
    if (!is_named_token(name) && name.ends_with("_token") && value.is_string()) own_tokens.insert(name);
  }
  take_extra_object();
}

/// Extra tokens that have names are special tokens of the model's own.
void ClassArguments::take_extra_object() {
  const auto extra = fields.find("extra_special_tokens");
  if (extra == fields.end() || !extra->is_object()) return;
  const Json tokens = std::move(*extra);
  fields.erase(extra);
  for (const auto& [name, value] : tokens.items()) {
    fields[name] = value;
    own_tokens.insert(name);
  }
}

void ClassArguments::read_decoder() {
  const auto tokens = node()["added_tokens_decoder"];
  for (const auto& [id, value] : tokens.object().items()) {
    by_id[token_number(tokens, id)] = read_given_token(tokens.value(value, id));
  }
  source_ = fmt::format("'{}': added_tokens_decoder", file_);
}

void ClassArguments::merge_special_tokens_map() {
  if (folder_.special_tokens_map.is_null()) return;
  const Node map(folder_.special_tokens_map, folder_.file("special_tokens_map.json").string());
  for (const auto& [name, value] : map.object().items()) {
    if (set_.contains(name)) continue;
    const auto entry = map.value(value, name);
    if (entry.is_list()) {
      for (const auto& token : entry.elements()) static_cast<void>(read_given_token(token));
      merge_list(name, value);
    } else if (value.is_object()) {
      static_cast<void>(read_given_token(entry));
      fields[name] = value;
      fields[name]["special"] = true;
    } else if (!value.is_null()) {
      static_cast<void>(entry.text());
      fields[name] = value;
    }
    if (!is_named_token(name) && name.ends_with("_token")) own_tokens.insert(name);
  }
}

void ClassArguments::merge_list(const std::string& name, const Json& tokens) {
  if (name != "extra_special_tokens" || !fields.contains(name) || !fields[name].is_array()) {
    fields[name] = tokens;
    return;
  }
  for (const auto& token : tokens) {
    if (std::find(fields[name].begin(), fields[name].end(), token) == fields[name].end())
      fields[name].push_back(token);
  }
}

bool ClassArguments::is_special(const std::string& content) const {
  const auto names_it = [&](const Json& token) {
    return token == content || (token.is_object() && token.value("content", Json()) == content);
  };
  for (const char* name : kNamedTokens) {
    if (fields.contains(name) && names_it(fields[name])) return true;
  }
  const auto extra = fields.find("extra_special_tokens");
  return extra != fields.end() && extra->is_array() && std::any_of(extra->begin(), extra->end(), names_it);
}

void ClassArguments::read_added_tokens() {
  if (folder_.added_tokens.is_null()) return;
  const Node tokens(folder_.added_tokens, folder_.file("added_tokens.json").string());
  for (const auto& [content, id] : tokens.object().items()) {
    const bool special = is_special(content);
    by_id[tokens.value(id, content).number()] = {
        .content = content, .is_text = false, .normalized = !special, .special = special};
  }
  source_ = fmt::format("'{}'", tokens.file());
}

void ClassArguments::read_tokens_of_file() {
  if (folder_.tokenizer.is_null()) return;
  const Node document(folder_.tokenizer, folder_.file("tokenizer.json").string());
  const auto tokens = document.find("added_tokens");
  for (std::size_t index = 0; tokens && index < tokens->size(); ++index) {
    const auto token = tokens->element(index);
    by_id[token["id"].number()] = read_given_token(token);
  }
  if (source_.empty()) source_ = fmt::format("'{}': added_tokens", document.file());
}

}  // namespace lockstep::tokenizer
