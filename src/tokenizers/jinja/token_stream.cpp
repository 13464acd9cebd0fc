#include "tokenizers/jinja/token_stream.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace lockstep::jinja {
namespace {

std::string description(const Token& token) {
  switch (token.type) {
    case TokenType::data:
      return "text";
    case TokenType::block_begin:
      return "'{%'";
    case TokenType::block_end:
      return "'%}'";
    case TokenType::variable_begin:
      return "'{{'";
    case TokenType::variable_end:
      return "'}}'";
    case TokenType::string:
      return "a string";
    case TokenType::end:
      return "the end of the template";
    default:
      return fmt::format("'{}'", token.text.substr(0, 60));
  }
}

}  // namespace

const Token& TokenStream::take() {
  const auto& token = tokens_[next_];
  if (next_ + 1 < tokens_.size()) ++next_;
  return token;
}

bool TokenStream::at_any_name(std::initializer_list<std::string_view> names) const {
  return at(TokenType::name) && std::find(names.begin(), names.end(), current().text) != names.end();
}

bool TokenStream::skip_sign(std::string_view sign) {
  if (!at_sign(sign)) return false;
  take();
  return true;
}

bool TokenStream::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  take();
  return true;
}

const Token& TokenStream::expect(TokenType type, std::string_view what) {
  if (!at(type)) fail_expected(what);
  return take();
}

void TokenStream::expect_sign(std::string_view sign) {
  if (!skip_sign(sign)) fail_expected(fmt::format("'{}'", sign));
}

void TokenStream::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_expected(fmt::format("'{}'", name));
}

void TokenStream::fail(const std::string& message) const { throw SyntaxFailure{message, current().line}; }

void TokenStream::fail_expected(std::string_view what) const {
  fail(fmt::format("expected {}, not {}", what, description(current())));
}

}  // namespace lockstep::jinja
