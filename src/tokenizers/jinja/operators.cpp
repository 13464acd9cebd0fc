#include "tokenizers/jinja/operators.hpp"

#include <fmt/core.h>

#include <cmath>

#include "tokenizers/jinja/comparison.hpp"
#include "tokenizers/jinja/percent_format.hpp"
#include "tokenizers/jinja/text_form.hpp"

namespace lockstep::jinja {
namespace {

[[noreturn]] void fail_types(std::string_view sign, const Value& left, const Value& right) {
  require_defined(left);
  require_defined(right);
  fail(fmt::format("'{}' is not supported between values of the types '{}' and '{}'.", sign, type_name(left),
                   type_name(right)));
}

[[noreturn]] void fail_overflow() { fail("an integer is beyond 64 bits."); }

std::int64_t power_of(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) fail_overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_overflow();
  }
  return result;
}

double floor_modulo(double left, double right) {
  double rest = std::fmod(left, right);
  if (rest != 0 && (rest < 0) != (right < 0)) return rest + right;
  return rest == 0 ? std::copysign(0.0, right) : rest;
}

Value integers(std::string_view sign, std::int64_t left, std::int64_t right) {
  std::int64_t result = 0;
  bool overflows = false;
  if (sign == "+") overflows = __builtin_add_overflow(left, right, &result);
  if (sign == "-") overflows = __builtin_sub_overflow(left, right, &result);
  if (sign == "*") overflows = __builtin_mul_overflow(left, right, &result);
  if (sign == "**") {
    if (right < 0) {
      if (left == 0) fail("zero has no negative power.");
      return Value::of(std::pow(static_cast<double>(left), static_cast<double>(right)));
    }
    return Value::of(power_of(left, right));
  }
  if (sign == "/" || sign == "//" || sign == "%") {
    if (right == 0) fail("division by zero.");
    if (sign == "/") return Value::of(static_cast<double>(left) / static_cast<double>(right));
    if (right == -1) {
      if (sign == "%") return Value::of(std::int64_t{0});
      overflows = __builtin_sub_overflow(std::int64_t{0}, left, &result);
    } else {
      const bool rounds_down = left % right != 0 && (left % right < 0) != (right < 0);
      result = sign == "//" ? left / right - (rounds_down ? 1 : 0) : left % right + (rounds_down ? right : 0);
    }
  }
  if (overflows) fail_overflow();
  return Value::of(result);
}

Value reals(std::string_view sign, double left, double right) {
  if (sign == "+") return Value::of(left + right);
  if (sign == "-") return Value::of(left - right);
  if (sign == "*") return Value::of(left * right);
  if (sign == "**") {
    if (left == 0 && right < 0) fail("zero has no negative power.");
    if (left < 0 && std::floor(right) != right) fail("complex numbers are not supported.");
    const double result = std::pow(left, right);
    if (std::isinf(result) && !std::isinf(left) && !std::isinf(right)) fail("a number is too large.");
    return Value::of(result);
  }
  if (right == 0) fail("division by zero.");
  if (sign == "/") return Value::of(left / right);
  const double rest = floor_modulo(left, right);
  if (sign == "%") return Value::of(rest);
  const double quotient = (left - rest) / right;
  double whole = std::floor(quotient);
  if (quotient - whole > 0.5) whole += 1;
  return Value::of(quotient == 0 ? std::copysign(0.0, left / right) : whole);
}

Value add_texts(Budget& budget, const Value& left, const Value& right) {
  const bool markup = left.markup || right.markup;
  Text text(budget);
  text.add(markup && !left.markup ? escape_html(text_of(left)) : text_of(left));
  text.add(markup && !right.markup ? escape_html(text_of(right)) : text_of(right));
  return Value::text(budget, text.take(), markup);
}

Value add_lists(Budget& budget, const Value& left, const Value& right) {
  budget.make((items_of(left).size() + items_of(right).size()) * sizeof(Value));
  auto items = items_of(left);
  items.insert(items.end(), items_of(right).begin(), items_of(right).end());
  return make_list(budget, std::move(items), left.kind);
}

Value repeat(Budget& budget, const Value& value, std::int64_t count) {
  const auto times = count < 0 ? std::size_t{0} : static_cast<std::size_t>(count);
  if (value.is(Kind::text)) {
    Text text(budget);
    text.add(times, text_of(value));
    return Value::text(budget, text.take(), value.markup);
  }
  const auto& own = items_of(value);
  std::size_t size = 0;
  if (__builtin_mul_overflow(own.size() * sizeof(Value), times, &size)) size = ~std::size_t{0};
  budget.make(size);
  Values items;
  for (std::size_t i = 0; i < times && !own.empty(); ++i) items.insert(items.end(), own.begin(), own.end());
  return make_list(budget, std::move(items), value.kind);
}

}  // namespace

Value arithmetic(Budget& budget, std::string_view sign, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    if (left.is_integer() && right.is_integer()) return integers(sign, left.integer, right.integer);
    return reals(sign, left.as_real(), right.as_real());
  }
  if (left.is(Kind::undefined) || (right.is(Kind::undefined) && sign != "%")) fail_types(sign, left, right);
  if (sign == "+" && left.kind == right.kind) {
    if (left.is(Kind::text)) return add_texts(budget, left, right);
    if (left.is_sequence()) return add_lists(budget, left, right);
  }
  if (sign == "*") {
    if (right.is_integer() && (left.is(Kind::text) || left.is_sequence()))
      return repeat(budget, left, right.integer);
    if (left.is_integer() && (right.is(Kind::text) || right.is_sequence()))
      return repeat(budget, right, left.integer);
  }
  if (sign == "%" && left.is(Kind::text)) return percent_format(budget, left, right);
  fail_types(sign, left, right);
}

Value negative(const Value& value) {
  require_defined(value);
  if (value.is(Kind::real)) return Value::of(-value.real);
  if (!value.is_integer())
    fail(fmt::format("'-' is not supported for a value of type '{}'.", type_name(value)));
  return integers("-", 0, value.integer);
}

Value positive(const Value& value) {
  require_defined(value);
  if (!value.is_number())
    fail(fmt::format("'+' is not supported for a value of type '{}'.", type_name(value)));
  return value.is(Kind::boolean) ? Value::of(value.integer) : value;
}

bool compare(Budget& budget, std::string_view sign, const Value& left, const Value& right) {
  if (sign == "==") return is_equal(budget, left, right);
  if (sign == "!=") return !is_equal(budget, left, right);
  if (sign == "<") return is_less(budget, left, right);
  if (sign == "<=") return is_less_or_equal(budget, left, right);
  if (sign == ">") return is_less(budget, right, left);
  if (sign == ">=") return is_less_or_equal(budget, right, left);
  return contains(budget, right, left) == (sign == "in");
}

Value concatenate(Budget& budget, const Values& values) {
  Text text(budget);
  for (const auto& value : values) text.add(value.is(Kind::text) ? text_of(value) : to_text(budget, value));
  return Value::text(budget, text.take());
}

std::string escape_html(std::string_view text) {
  std::string escaped;
  for (const char byte : text) {
    switch (byte) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      case '"':
        escaped += "&#34;";
        break;
      default:
        escaped += byte;
    }
  }
  return escaped;
}

}  // namespace lockstep::jinja
