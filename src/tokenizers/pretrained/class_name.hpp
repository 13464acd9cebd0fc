#pragma once

#include <string>

#include "tokenizers/pretrained/model_folder.hpp"

namespace lockstep::tokenizer {

/// The class that reads tokenizer.json as it is.
inline constexpr const char* kGenericClass = "TokenizersBackend";

/// The tokenizer class that AutoTokenizer of transformers 5 takes for a folder: that of
/// tokenizer_config.json, of config.json, or of the model's type, unless these disagree. Without the ending
/// "Fast". Throws DataError for a folder whose class is Python code of its own.
std::string class_name_of(const ModelFolder& folder);

}  // namespace lockstep::tokenizer
