#include <fmt/core.h>

#include "tokenizers/jinja/access.hpp"
#include "tokenizers/jinja/filters.hpp"
#include "tokenizers/jinja/interpreter.hpp"
#include "tokenizers/jinja/jinja_tests.hpp"
#include "tokenizers/jinja/operators.hpp"

namespace lockstep::jinja {

Value Interpreter::evaluate(const Expression& expression, const ScopePtr& scope) {
  const Level level(*this);
  switch (expression.kind) {
    case ExpressionKind::constant:
      return expression.constant;
    case ExpressionKind::name:
      return evaluate_name(expression, scope);
    case ExpressionKind::namespace_target:
      break;
    case ExpressionKind::list:
      return make_list(budget_, evaluate_parts(expression, scope));
    case ExpressionKind::tuple:
      return make_tuple(budget_, evaluate_parts(expression, scope));
    case ExpressionKind::dict:
      return evaluate_dict(expression, scope);
    case ExpressionKind::attribute: {
      const auto object = evaluate(*expression.parts[0], scope);
      line_ = expression.line;
      return get_attribute(budget_, object, expression.text);
    }
    case ExpressionKind::item: {
      const auto parts = evaluate_parts(expression, scope);
      line_ = expression.line;
      return get_item(budget_, parts[0], parts[1]);
    }
    case ExpressionKind::slice:
      return evaluate_slice(expression, scope);
    case ExpressionKind::call:
      return evaluate_call(expression, scope);
    case ExpressionKind::filter:
      return evaluate_filter(expression, scope);
    case ExpressionKind::test:
      return evaluate_test(expression, scope);
    case ExpressionKind::logical_not:
      return Value::of(!is_true(evaluate(*expression.parts[0], scope)));
    case ExpressionKind::logical_and: {
      auto left = evaluate(*expression.parts[0], scope);
      return is_true(left) ? evaluate(*expression.parts[1], scope) : left;
    }
    case ExpressionKind::logical_or: {
      auto left = evaluate(*expression.parts[0], scope);
      return is_true(left) ? left : evaluate(*expression.parts[1], scope);
    }
    case ExpressionKind::negative:
      return negative(evaluate(*expression.parts[0], scope));
    case ExpressionKind::positive:
      return positive(evaluate(*expression.parts[0], scope));
    case ExpressionKind::arithmetic: {
      const auto parts = evaluate_parts(expression, scope);
      line_ = expression.line;
      return arithmetic(budget_, expression.text, parts[0], parts[1]);
    }
    case ExpressionKind::concatenation:
      return concatenate(budget_, evaluate_parts(expression, scope));
    case ExpressionKind::comparison:
      return evaluate_comparison(expression, scope);
    case ExpressionKind::conditional:
      return evaluate_conditional(expression, scope);
  }
  return Value::none();
}

Value Interpreter::evaluate_or_none(const ExpressionPtr& expression, const ScopePtr& scope) {
  return expression ? evaluate(*expression, scope) : Value::none();
}

Value Interpreter::evaluate_name(const Expression& expression, const ScopePtr& scope) {
  if (const auto* found = scope->find(expression.text)) return *found;
  return Value::undefined(budget_, fmt::format("'{}' is undefined: give it as a variable of the template.",
                                               expression.text.substr(0, 100)));
}

Values Interpreter::evaluate_parts(const Expression& expression, const ScopePtr& scope) {
  Values values;
  values.reserve(expression.parts.size());
  for (const auto& part : expression.parts) values.push_back(evaluate(*part, scope));
  return values;
}

Value Interpreter::evaluate_dict(const Expression& expression, const ScopePtr& scope) {
  std::vector<std::pair<Value, Value>> entries;
  for (std::size_t i = 0; i + 1 < expression.parts.size(); i += 2) {
    auto key = evaluate(*expression.parts[i], scope);
    entries.emplace_back(std::move(key), evaluate(*expression.parts[i + 1], scope));
  }
  line_ = expression.line;
  return make_dict(budget_, std::move(entries));
}

Value Interpreter::evaluate_slice(const Expression& expression, const ScopePtr& scope) {
  const auto object = evaluate(*expression.parts[0], scope);
  const auto start = evaluate_or_none(expression.parts[1], scope);
  const auto stop = evaluate_or_none(expression.parts[2], scope);
  const auto step = evaluate_or_none(expression.parts[3], scope);
  line_ = expression.line;
  return get_slice(budget_, object, start, stop, step);
}

Value Interpreter::evaluate_comparison(const Expression& expression, const ScopePtr& scope) {
  auto left = evaluate(*expression.parts[0], scope);
  for (std::size_t i = 0; i < expression.signs.size(); ++i) {
    auto right = evaluate(*expression.parts[i + 1], scope);
    line_ = expression.line;
    if (!compare(budget_, expression.signs[i], left, right)) return Value::of(false);
    left = std::move(right);
  }
  return Value::of(true);
}

Value Interpreter::evaluate_conditional(const Expression& expression, const ScopePtr& scope) {
  if (is_true(evaluate(*expression.parts[0], scope))) return evaluate(*expression.parts[1], scope);
  if (expression.parts[2]) return evaluate(*expression.parts[2], scope);
  return Value::undefined(budget_,
                          fmt::format("the if of line {} is false and has no else.", expression.line));
}

Arguments Interpreter::evaluate_arguments(const Expression& expression, const ScopePtr& scope) {
  Arguments arguments;
  for (const auto& argument : expression.arguments) {
    auto value = evaluate(*argument.value, scope);
    line_ = expression.line;
    switch (argument.kind) {
      case ArgumentKind::positional:
        arguments.positional.push_back(std::move(value));
        break;
      case ArgumentKind::named:
        arguments.named.emplace_back(argument.name, std::move(value));
        break;
      case ArgumentKind::unpacked_list:
        for (auto& item : elements_of(budget_, value)) arguments.positional.push_back(std::move(item));
        break;
      case ArgumentKind::unpacked_dict:
        if (!value.is(Kind::dict))
          fail(fmt::format("'**' needs a dictionary, not a value of type '{}'.", type_name(value)));
        for (const auto& [key, own] : value.as<DictObject>().entries) {
          if (!key.is(Kind::text)) fail("'**' needs a dictionary whose keys are strings.");
          budget_.make(sizeof(Value) + text_of(key).size());
          arguments.named.emplace_back(text_of(key), own);
        }
        break;
    }
  }
  return arguments;
}

Value Interpreter::evaluate_call(const Expression& expression, const ScopePtr& scope) {
  const auto function = evaluate(*expression.parts[0], scope);
  const auto arguments = evaluate_arguments(expression, scope);
  line_ = expression.line;
  return call(function, arguments);
}

Value Interpreter::evaluate_test(const Expression& expression, const ScopePtr& scope) {
  const auto value = evaluate(*expression.parts[0], scope);
  const auto arguments = evaluate_arguments(expression, scope);
  line_ = expression.line;
  return Value::of(apply_test(budget_, expression.text, value, arguments));
}

Value Interpreter::evaluate_filter(const Expression& expression, const ScopePtr& scope, const Value* block) {
  Value value;
  const auto& inner = expression.parts[0];
  if (!inner) {
    value = *block;
  } else if (block != nullptr) {
    value = evaluate_filter(*inner, scope, block);
  } else {
    value = evaluate(*inner, scope);
  }
  const auto arguments = evaluate_arguments(expression, scope);
  line_ = expression.line;
  return apply_filter(budget_, expression.text, value, arguments);
}

}  // namespace lockstep::jinja
