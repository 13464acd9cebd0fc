#include "tokenizers/jinja/expression_parser.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep::jinja {
namespace {

/// What Python's compiler takes too, and the stack has room for.
constexpr int kDeepestTree = 150;
/// A level of parentheses has several of the parser's.
constexpr int kDeepestNesting = 500;

constexpr std::array<std::string_view, 6> kComparisons = {"==", "!=", ">", ">=", "<", "<="};

bool is_assignable(const Expression& target) {
  if (target.kind == ExpressionKind::tuple) {
    return std::all_of(target.parts.begin(), target.parts.end(),
                       [](const auto& part) { return is_assignable(*part); });
  }
  return target.kind == ExpressionKind::name || target.kind == ExpressionKind::namespace_target;
}

}  // namespace

ExpressionParser::Nested::Nested(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.nested_ > kDeepestNesting)
    parser_.stream_.fail("blocks and expressions are nested too deeply");
}

ExpressionParser::Nested::~Nested() { --parser_.nested_; }

ExpressionPtr ExpressionParser::finish(Expression expression) const {
  const auto take = [&](const ExpressionPtr& part) {
    if (part) expression.depth = std::max(expression.depth, part->depth + 1);
  };
  for (const auto& part : expression.parts) take(part);
  for (const auto& argument : expression.arguments) take(argument.value);
  if (expression.depth > kDeepestTree) {
    throw SyntaxFailure{fmt::format("an expression is nested more than {} levels deep", kDeepestTree),
                        expression.line};
  }
  return std::make_unique<const Expression>(std::move(expression));
}

ExpressionPtr ExpressionParser::parse_expression(bool with_condition) {
  const Nested nested(*this);
  return with_condition ? parse_conditional() : parse_or();
}

ExpressionPtr ExpressionParser::parse_conditional() {
  const Nested nested(*this);
  auto value = parse_or();
  while (stream_.at_name("if")) {
    auto whole = node(ExpressionKind::conditional);
    stream_.take();
    whole.parts.push_back(parse_or());
    whole.parts.push_back(std::move(value));
    whole.parts.push_back(stream_.skip_name("else") ? parse_conditional() : nullptr);
    value = finish(std::move(whole));
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_or() {
  auto left = parse_and();
  while (stream_.at_name("or")) {
    auto whole = node(ExpressionKind::logical_or);
    stream_.take();
    whole.parts.push_back(std::move(left));
    whole.parts.push_back(parse_and());
    left = finish(std::move(whole));
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_and() {
  auto left = parse_not();
  while (stream_.at_name("and")) {
    auto whole = node(ExpressionKind::logical_and);
    stream_.take();
    whole.parts.push_back(std::move(left));
    whole.parts.push_back(parse_not());
    left = finish(std::move(whole));
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_not() {
  if (!stream_.at_name("not")) return parse_comparison();
  const Nested nested(*this);
  auto whole = node(ExpressionKind::logical_not);
  stream_.take();
  whole.parts.push_back(parse_not());
  return finish(std::move(whole));
}

ExpressionPtr ExpressionParser::parse_comparison() {
  auto whole = node(ExpressionKind::comparison);
  whole.parts.push_back(parse_sum());
  while (true) {
    if (stream_.at(TokenType::sign) &&
        std::find(kComparisons.begin(), kComparisons.end(), stream_.current().text) != kComparisons.end()) {
      whole.signs.push_back(stream_.take().text);
    } else if (stream_.skip_name("in")) {
      whole.signs.emplace_back("in");
    } else if (stream_.at_name("not") && stream_.look().type == TokenType::name &&
               stream_.look().text == "in") {
      stream_.take();
      stream_.take();
      whole.signs.emplace_back("not in");
    } else {
      break;
    }
    whole.parts.push_back(parse_sum());
  }
  if (whole.signs.empty()) return std::move(whole.parts.front());
  return finish(std::move(whole));
}

ExpressionPtr ExpressionParser::parse_sum() {
  auto left = parse_concatenation();
  while (stream_.at_sign("+") || stream_.at_sign("-")) {
    auto whole = node(ExpressionKind::arithmetic);
    whole.text = stream_.take().text;
    whole.parts.push_back(std::move(left));
    whole.parts.push_back(parse_concatenation());
    left = finish(std::move(whole));
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_concatenation() {
  auto whole = node(ExpressionKind::concatenation);
  whole.parts.push_back(parse_product());
  while (stream_.skip_sign("~")) whole.parts.push_back(parse_product());
  if (whole.parts.size() == 1) return std::move(whole.parts.front());
  return finish(std::move(whole));
}

ExpressionPtr ExpressionParser::parse_product() {
  auto left = parse_power();
  while (stream_.at_sign("*") || stream_.at_sign("/") || stream_.at_sign("//") || stream_.at_sign("%")) {
    auto whole = node(ExpressionKind::arithmetic);
    whole.text = stream_.take().text;
    whole.parts.push_back(std::move(left));
    whole.parts.push_back(parse_power());
    left = finish(std::move(whole));
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_power() {
  auto left = parse_unary();
  while (stream_.at_sign("**")) {
    auto whole = node(ExpressionKind::arithmetic);
    whole.text = stream_.take().text;
    whole.parts.push_back(std::move(left));
    whole.parts.push_back(parse_unary());
    left = finish(std::move(whole));
  }
  return left;
}

ExpressionPtr ExpressionParser::parse_unary(bool with_filters) {
  ExpressionPtr value;
  if (stream_.at_sign("-") || stream_.at_sign("+")) {
    const Nested nested(*this);
    auto whole = node(stream_.at_sign("-") ? ExpressionKind::negative : ExpressionKind::positive);
    stream_.take();
    whole.parts.push_back(parse_unary(false));
    value = finish(std::move(whole));
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return with_filters ? parse_filters_and_tests(std::move(value)) : std::move(value);
}

void ExpressionParser::note_special(const std::string& name) {
  for (auto& names : macros_) {
    names.caller |= name == "caller";
    names.kwargs |= name == "kwargs";
    names.varargs |= name == "varargs";
  }
}

ExpressionPtr ExpressionParser::parse_named(bool with_namespace, bool is_target) {
  auto whole = node(ExpressionKind::name);
  whole.text = stream_.take().text;
  if (whole.text == "true" || whole.text == "True" || whole.text == "false" || whole.text == "False") {
    whole.kind = ExpressionKind::constant;
    whole.constant = Value::of(whole.text == "true" || whole.text == "True");
  } else if (whole.text == "none" || whole.text == "None") {
    whole.kind = ExpressionKind::constant;
  } else if (with_namespace && stream_.skip_sign(".")) {
    whole.kind = ExpressionKind::namespace_target;
    whole.attribute = parse_name();
  } else if (!is_target) {
    note_special(whole.text);
  }
  return finish(std::move(whole));
}

ExpressionPtr ExpressionParser::parse_primary(bool with_namespace, bool is_target) {
  const Nested nested(*this);
  auto unlimited = Budget::unlimited();
  switch (stream_.current().type) {
    case TokenType::name:
      return parse_named(with_namespace, is_target);
    case TokenType::string: {
      auto whole = node(ExpressionKind::constant);
      std::string text;
      while (stream_.at(TokenType::string)) text += stream_.take().text;
      whole.constant = Value::text(unlimited, std::move(text));
      return finish(std::move(whole));
    }
    case TokenType::number: {
      auto whole = node(ExpressionKind::constant);
      whole.constant = stream_.take().number;
      return finish(std::move(whole));
    }
    default:
      break;
  }
  if (stream_.skip_sign("(")) {
    auto inner = parse_tuple(true, {}, true);
    stream_.expect_sign(")");
    return inner;
  }
  if (stream_.at_sign("[")) return parse_list();
  if (stream_.at_sign("{")) return parse_dict();
  stream_.fail_expected("an expression");
}

ExpressionPtr ExpressionParser::parse_tuple(bool with_condition, std::string_view end_name,
                                            bool in_parentheses) {
  const Nested nested(*this);
  auto whole = node(ExpressionKind::tuple);
  bool is_tuple = false;
  while (true) {
    if (!whole.parts.empty()) stream_.expect_sign(",");
    if (stream_.at(TokenType::variable_end) || stream_.at(TokenType::block_end) || stream_.at_sign(")") ||
        (!end_name.empty() && stream_.at_name(end_name))) {
      break;
    }
    whole.parts.push_back(parse_expression(with_condition));
    if (!stream_.at_sign(",")) break;
    is_tuple = true;
  }
  if (is_tuple || (whole.parts.empty() && in_parentheses)) return finish(std::move(whole));
  if (whole.parts.empty()) stream_.fail_expected("an expression");
  return std::move(whole.parts.front());
}

ExpressionPtr ExpressionParser::parse_target(std::string_view end_name, bool with_namespace) {
  const Nested nested(*this);
  auto whole = node(ExpressionKind::tuple);
  bool is_tuple = false;
  const auto one = [&]() -> ExpressionPtr {
    if (!stream_.skip_sign("(")) return parse_primary(with_namespace, true);
    auto inner = parse_target({}, false);
    stream_.expect_sign(")");
    return inner;
  };
  while (true) {
    if (!whole.parts.empty()) stream_.expect_sign(",");
    if (stream_.at(TokenType::variable_end) || stream_.at(TokenType::block_end) || stream_.at_sign(")") ||
        (!end_name.empty() && stream_.at_name(end_name))) {
      break;
    }
    whole.parts.push_back(one());
    if (!stream_.at_sign(",")) break;
    is_tuple = true;
  }
  if (whole.parts.empty()) stream_.fail_expected("a name");
  auto target = is_tuple ? finish(std::move(whole)) : std::move(whole.parts.front());
  if (!is_assignable(*target)) throw SyntaxFailure{"this cannot be assigned to: give a name", target->line};
  return target;
}

std::string ExpressionParser::parse_name() { return stream_.expect(TokenType::name, "a name").text; }

ExpressionPtr ExpressionParser::parse_list() {
  auto whole = node(ExpressionKind::list);
  stream_.expect_sign("[");
  while (!stream_.at_sign("]")) {
    if (!whole.parts.empty()) stream_.expect_sign(",");
    if (stream_.at_sign("]")) break;
    whole.parts.push_back(parse_expression());
  }
  stream_.expect_sign("]");
  return finish(std::move(whole));
}

ExpressionPtr ExpressionParser::parse_dict() {
  auto whole = node(ExpressionKind::dict);
  stream_.expect_sign("{");
  while (!stream_.at_sign("}")) {
    if (!whole.parts.empty()) stream_.expect_sign(",");
    if (stream_.at_sign("}")) break;
    whole.parts.push_back(parse_expression());
    stream_.expect_sign(":");
    whole.parts.push_back(parse_expression());
  }
  stream_.expect_sign("}");
  return finish(std::move(whole));
}

ExpressionPtr ExpressionParser::parse_postfix(ExpressionPtr value) {
  while (true) {
    if (stream_.at_sign(".") || stream_.at_sign("[")) {
      value = parse_subscript(std::move(value));
    } else if (stream_.at_sign("(")) {
      value = parse_call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::parse_filters_and_tests(ExpressionPtr value) {
  while (true) {
    if (stream_.at_sign("|")) {
      value = parse_filters(std::move(value), false);
    } else if (stream_.at_name("is")) {
      value = parse_test(std::move(value));
    } else if (stream_.at_sign("(")) {
      value = parse_call(std::move(value));
    } else {
      return value;
    }
  }
}

ExpressionPtr ExpressionParser::parse_subscript(ExpressionPtr value) {
  auto whole = node(ExpressionKind::attribute);
  const int line = whole.line;
  if (stream_.skip_sign(".")) {
    whole.parts.push_back(std::move(value));
    if (stream_.at(TokenType::name)) {
      whole.text = stream_.take().text;
      return finish(std::move(whole));
    }
    if (!stream_.at(TokenType::number) || !stream_.current().number.is(Kind::integer))
      stream_.fail_expected("a name or a number");
    whole.kind = ExpressionKind::item;
    auto number = node(ExpressionKind::constant);
    number.constant = stream_.take().number;
    whole.parts.push_back(finish(std::move(number)));
    return finish(std::move(whole));
  }
  stream_.expect_sign("[");
  auto item = parse_subscribed(std::move(value), line);
  stream_.expect_sign("]");
  return item;
}

ExpressionPtr ExpressionParser::parse_subscribed(ExpressionPtr value, int line) {
  Expression whole{.kind = ExpressionKind::slice, .line = line};
  whole.parts.push_back(std::move(value));
  ExpressionPtr first;
  if (!stream_.at_sign(":")) {
    first = parse_expression();
    if (!stream_.at_sign(":")) {
      whole.kind = ExpressionKind::item;
      if (stream_.at_sign(",")) {
        auto tuple = node(ExpressionKind::tuple);
        tuple.parts.push_back(std::move(first));
        while (stream_.skip_sign(",")) tuple.parts.push_back(parse_expression());
        first = finish(std::move(tuple));
      }
      whole.parts.push_back(std::move(first));
      return finish(std::move(whole));
    }
  }
  stream_.expect_sign(":");
  whole.parts.push_back(std::move(first));
  whole.parts.push_back(stream_.at_sign(":") || stream_.at_sign("]") ? nullptr : parse_expression());
  const bool has_step = stream_.skip_sign(":") && !stream_.at_sign("]");
  whole.parts.push_back(has_step ? parse_expression() : nullptr);
  return finish(std::move(whole));
}

std::vector<CallArgument> ExpressionParser::parse_arguments() {
  std::vector<CallArgument> arguments;
  const auto has = [&](ArgumentKind kind) {
    return std::any_of(arguments.begin(), arguments.end(),
                       [&](const auto& argument) { return argument.kind == kind; });
  };
  const auto require = [&](bool holds) {
    if (!holds) stream_.fail("the arguments of a call are in the wrong order");
  };
  stream_.expect_sign("(");
  while (!stream_.at_sign(")")) {
    if (!arguments.empty()) {
      stream_.expect_sign(",");
      if (stream_.at_sign(")")) break;
    }
    CallArgument argument;
    if (stream_.skip_sign("*")) {
      require(!has(ArgumentKind::unpacked_list) && !has(ArgumentKind::unpacked_dict));
      argument.kind = ArgumentKind::unpacked_list;
    } else if (stream_.skip_sign("**")) {
      require(!has(ArgumentKind::unpacked_dict));
      argument.kind = ArgumentKind::unpacked_dict;
    } else if (stream_.at(TokenType::name) && stream_.look().type == TokenType::sign &&
               stream_.look().text == "=") {
      require(!has(ArgumentKind::unpacked_dict));
      argument.kind = ArgumentKind::named;
      argument.name = stream_.take().text;
      stream_.take();
    } else {
      require(!has(ArgumentKind::unpacked_list) && !has(ArgumentKind::unpacked_dict) &&
              !has(ArgumentKind::named));
    }
    argument.value = parse_expression();
    arguments.push_back(std::move(argument));
  }
  stream_.expect_sign(")");
  return arguments;
}

ExpressionPtr ExpressionParser::parse_call(ExpressionPtr function) {
  auto whole = node(ExpressionKind::call);
  whole.parts.push_back(std::move(function));
  whole.arguments = parse_arguments();
  return finish(std::move(whole));
}

ExpressionPtr ExpressionParser::parse_filters(ExpressionPtr value, bool starts_without_sign) {
  while (stream_.at_sign("|") || starts_without_sign) {
    if (!starts_without_sign) stream_.take();
    starts_without_sign = false;
    auto whole = node(ExpressionKind::filter);
    whole.text = parse_name();
    while (stream_.skip_sign(".")) whole.text += "." + parse_name();
    whole.parts.push_back(std::move(value));
    if (stream_.at_sign("(")) whole.arguments = parse_arguments();
    value = finish(std::move(whole));
  }
  return value;
}

ExpressionPtr ExpressionParser::parse_test(ExpressionPtr value) {
  auto whole = node(ExpressionKind::test);
  stream_.expect_name("is");
  const bool negated = stream_.skip_name("not");
  whole.text = parse_name();
  while (stream_.skip_sign(".")) whole.text += "." + parse_name();
  whole.parts.push_back(std::move(value));
  if (stream_.at_sign("(")) {
    whole.arguments = parse_arguments();
  } else if ((stream_.at(TokenType::name) && !stream_.at_any_name({"else", "or", "and"})) ||
             stream_.at(TokenType::string) || stream_.at(TokenType::number) || stream_.at_sign("[") ||
             stream_.at_sign("{")) {
    if (stream_.at_name("is"))
      stream_.fail("tests with 'is' cannot follow each other: put the first in parentheses");
    CallArgument argument;
    argument.value = parse_postfix(parse_primary());
    whole.arguments.push_back(std::move(argument));
  }
  auto test = finish(std::move(whole));
  if (!negated) return test;
  Expression opposite{.kind = ExpressionKind::logical_not, .line = test->line};
  opposite.parts.push_back(std::move(test));
  return finish(std::move(opposite));
}

}  // namespace lockstep::jinja
