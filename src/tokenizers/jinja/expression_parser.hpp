#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/jinja/token_stream.hpp"
#include "tokenizers/jinja/tree.hpp"

namespace lockstep::jinja {

/// Special names that a macro's body uses.
struct SpecialNames {
  bool caller = false;
  bool kwargs = false;
  bool varargs = false;
};

/// Reads expressions from tokens, with the priorities of jinja2.
class ExpressionParser {
 public:
  /// The stream must outlive this.
  explicit ExpressionParser(TokenStream& stream) : stream_(stream) {}

  ExpressionPtr parse_expression(bool with_condition = true);
  /// An expression, or several with commas between them, which are a tuple.
  ExpressionPtr parse_tuple(bool with_condition = true, std::string_view end_name = {},
                            bool in_parentheses = false);
  /// What a value is assigned to: a name, a tuple of targets, or with `with_namespace` ns.name.
  ExpressionPtr parse_target(std::string_view end_name = {}, bool with_namespace = false);
  std::string parse_name();
  /// Filters that are applied to `value`, which is null for a block.
  ExpressionPtr parse_filters(ExpressionPtr value, bool starts_without_sign);

  /// The special names read since the last call for the same macro: macros are nested.
  std::vector<SpecialNames>& macros() { return macros_; }
  /// Throws SyntaxFailure beyond the greatest depth of nested constructs.
  class Nested {
   public:
    explicit Nested(ExpressionParser& parser);
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    ~Nested();

   private:
    ExpressionParser& parser_;
  };

 private:
  ExpressionPtr finish(Expression expression) const;
  Expression node(ExpressionKind kind) const { return {.kind = kind, .line = stream_.current().line}; }
  ExpressionPtr parse_conditional();
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters = true);
  ExpressionPtr parse_primary(bool with_namespace = false, bool is_target = false);
  ExpressionPtr parse_named(bool with_namespace, bool is_target);
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr value);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr value);
  ExpressionPtr parse_subscript(ExpressionPtr value);
  ExpressionPtr parse_subscribed(ExpressionPtr value, int line);
  ExpressionPtr parse_call(ExpressionPtr function);
  ExpressionPtr parse_test(ExpressionPtr value);
  std::vector<CallArgument> parse_arguments();
  void note_special(const std::string& name);

  TokenStream& stream_;
  std::vector<SpecialNames> macros_;
  int nested_ = 0;
};

}  // namespace lockstep::jinja
