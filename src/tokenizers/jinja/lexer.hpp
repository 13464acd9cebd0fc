#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/jinja/value.hpp"

namespace lockstep::jinja {

/// A template that is not one. The text has the line.
struct SyntaxFailure {
  std::string message;
  int line;
};

enum class TokenType : std::uint8_t {
  data,
  block_begin,
  block_end,
  variable_begin,
  variable_end,
  name,
  string,
  number,
  sign,
  end,
};

struct Token {
  TokenType type;
  int line;
  /// The data, name, string or sign.
  std::string text = {};
  /// Of a number.
  Value number = {};
};

/// The tokens of a template, the last of which is `end`: what jinja2's lexer gives with trim_blocks and
/// lstrip_blocks, as transformers sets them. Throws SyntaxFailure.
std::vector<Token> tokens_of(std::string_view source);

}  // namespace lockstep::jinja
