#pragma once

#include <string_view>

#include "tokenizers/jinja/lexer.hpp"
#include "tokenizers/jinja/tree.hpp"

namespace lockstep::jinja {

/// Reads a template as jinja2's parser does. Throws SyntaxFailure for one that jinja2 does not take, that is
/// nested too deeply, or that includes other templates.
Tree parse(std::string_view source);

}  // namespace lockstep::jinja
