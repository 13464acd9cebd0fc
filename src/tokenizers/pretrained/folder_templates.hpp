#pragma once

#include <map>
#include <string>

#include "tokenizers/pretrained/model_folder.hpp"

namespace lockstep::tokenizer {

/// The chat templates of a folder by their names: chat_template.jinja, which is "default", and the files of
/// additional_chat_templates; without these, the field "chat_template" of tokenizer_config.json. Throws
/// DataError for a field that is neither a text nor a list of names and templates.
std::map<std::string, std::string> chat_templates_of(const ModelFolder& folder);

}  // namespace lockstep::tokenizer
