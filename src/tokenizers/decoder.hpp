#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tokenizers/json_file.hpp"

namespace lockstep::tokenizer {

/// Converts tokens to parts of the text, which are then concatenated. Any thread.
using Decoder = std::function<void(std::vector<std::string>& tokens)>;

/// Creates the decoder of a file's field "decoder". Throws DataError if it is not supported.
Decoder make_decoder(const Node& node);

/// Removes the spaces before punctuation and English contractions, as transformers does on request.
void clean_up_text(std::string& text);

/// The default without a decoder.
void join_by_spaces(std::vector<std::string>& tokens);

}  // namespace lockstep::tokenizer
