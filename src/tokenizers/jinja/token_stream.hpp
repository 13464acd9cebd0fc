#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/jinja/lexer.hpp"

namespace lockstep::jinja {

/// The tokens that a parser has before it.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[next_]; }
  const Token& look() const { return tokens_[next_ + 1 < tokens_.size() ? next_ + 1 : next_]; }
  /// The current token; goes on to the next.
  const Token& take();

  bool at(TokenType type) const { return current().type == type; }
  bool at_sign(std::string_view sign) const { return at(TokenType::sign) && current().text == sign; }
  bool at_name(std::string_view name) const { return at(TokenType::name) && current().text == name; }
  bool at_any_name(std::initializer_list<std::string_view> names) const;
  bool skip_sign(std::string_view sign);
  bool skip_name(std::string_view name);

  /// Throw SyntaxFailure if something else is there.
  const Token& expect(TokenType type, std::string_view what);
  void expect_sign(std::string_view sign);
  void expect_name(std::string_view name);
  [[noreturn]] void fail(const std::string& message) const;
  [[noreturn]] void fail_expected(std::string_view what) const;

 private:
  std::vector<Token> tokens_;
  std::size_t next_ = 0;
};

}  // namespace lockstep::jinja
