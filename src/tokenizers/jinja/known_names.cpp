#include "tokenizers/jinja/known_names.hpp"

#include "tokenizers/jinja/filters.hpp"
#include "tokenizers/jinja/jinja_tests.hpp"
#include "tokenizers/jinja/lexer.hpp"

namespace lockstep::jinja {
namespace {

void check_expression(const ExpressionPtr& expression, bool may_be_unknown) {
  if (!expression) return;
  may_be_unknown |= expression->kind == ExpressionKind::conditional;
  if (!may_be_unknown && expression->kind == ExpressionKind::filter && !has_filter(expression->text)) {
    throw SyntaxFailure{unknown_filter(expression->text), expression->line};
  }
  if (!may_be_unknown && expression->kind == ExpressionKind::test && !has_test(expression->text)) {
    throw SyntaxFailure{unknown_test(expression->text), expression->line};
  }
  for (const auto& part : expression->parts) check_expression(part, may_be_unknown);
  for (const auto& argument : expression->arguments) check_expression(argument.value, may_be_unknown);
}

void check_body(const Body& body, bool may_be_unknown) {
  for (const auto& statement : body) {
    const bool inner = statement->kind == StatementKind::if_block;
    check_expression(statement->value, may_be_unknown);
    check_expression(statement->condition, may_be_unknown);
    for (const auto& value : statement->values) check_expression(value, may_be_unknown);
    for (const auto& parameter : statement->callable.parameters) check_expression(parameter.otherwise, false);
    for (const auto& branch : statement->branches) {
      check_expression(branch.condition, true);
      check_body(branch.body, inner);
    }
    check_body(statement->body, inner);
    check_body(statement->otherwise, inner);
    check_body(statement->callable.body, false);
  }
}

}  // namespace

void check_names(const Tree& tree) { check_body(tree.body, false); }

}  // namespace lockstep::jinja
