#include "tokenizers/jinja/jinja_tests.hpp"

#include <fmt/core.h>

#include <cmath>
#include <string_view>
#include <unordered_map>

#include "tokenizers/jinja/characters.hpp"
#include "tokenizers/jinja/comparison.hpp"
#include "tokenizers/jinja/filters.hpp"
#include "tokenizers/jinja/operators.hpp"
#include "tokenizers/jinja/text_form.hpp"

namespace lockstep::jinja {
namespace {

struct TestCall {
  Budget& budget;
  const std::string& name;
  const Value& value;
  const Arguments& arguments;

  std::string title() const { return "the test '" + name + "'"; }
};
using Test = bool (*)(const TestCall& call);

/// A test without arguments, of the value alone.
template <bool (*holds)(const Value&)>
bool of_value(const TestCall& call) {
  const Bound bound(call.title(), call.arguments, {});
  return holds(call.value);
}

bool is_sequence_like(const Value& value) {
  return value.is(Kind::undefined) || value.is(Kind::text) || value.is_sequence() || value.is(Kind::dict) ||
         value.is(Kind::range);
}

bool is_callable(const Value& value) {
  return value.is(Kind::function) || value.is(Kind::method) || value.is(Kind::macro) ||
         value.is(Kind::loop) || value.is(Kind::undefined);
}

template <Kind kind>
bool is_kind(const Value& value) {
  return value.is(kind);
}
template <bool flag>
bool is_flag(const Value& value) {
  return value.is(Kind::boolean) && (value.integer != 0) == flag;
}
bool is_defined(const Value& value) { return !value.is(Kind::undefined); }
bool is_numeric(const Value& value) { return value.is_number(); }
bool is_markup(const Value& value) { return value.markup; }

bool has_rest(const TestCall& call, const Value& divisor, std::int64_t rest) {
  const auto remainder = arithmetic(call.budget, "%", call.value, divisor);
  return is_equal(call.budget, remainder, Value::of(rest));
}

bool is_odd(const TestCall& call) { return has_rest(call, Value::of(std::int64_t{2}), 1); }
bool is_even(const TestCall& call) { return has_rest(call, Value::of(std::int64_t{2}), 0); }
bool is_divisible(const TestCall& call) {
  const Bound bound(call.title(), call.arguments, {"num"}, 1);
  return has_rest(call, bound[0], 0);
}

bool is_of_case(const TestCall& call) {
  const auto text = to_text(call.budget, call.value);
  const auto upper = to_upper(text);
  const auto lower = to_lower(text);
  return upper != lower && text == (call.name == "upper" ? upper : lower);
}

bool is_identical(const TestCall& call) {
  const Bound bound(call.title(), call.arguments, {"other"}, 1);
  return is_same(call.value, bound[0]);
}

bool is_in(const TestCall& call) {
  const Bound bound(call.title(), call.arguments, {"seq"}, 1);
  return contains(call.budget, bound[0], call.value);
}

bool names_test(const TestCall& call);

bool names_filter(const TestCall& call) {
  (void)hash_of(call.budget, call.value);
  return call.value.is(Kind::text) && has_filter(text_of(call.value));
}

template <const char* sign>
bool compares(const TestCall& call) {
  const Bound bound(call.title(), call.arguments, {"other"}, 1);
  return compare(call.budget, sign, call.value, bound[0]);
}

constexpr char kEqual[] = "==";
constexpr char kUnequal[] = "!=";
constexpr char kGreater[] = ">";
constexpr char kGreaterEqual[] = ">=";
constexpr char kLess[] = "<";
constexpr char kLessEqual[] = "<=";

const std::unordered_map<std::string_view, Test>& known_tests() {
  static const std::unordered_map<std::string_view, Test> tests = {
      {"odd", is_odd},
      {"even", is_even},
      {"divisibleby", is_divisible},
      {"defined", of_value<is_defined>},
      {"undefined", of_value<is_kind<Kind::undefined>>},
      {"filter", names_filter},
      {"test", names_test},
      {"none", of_value<is_kind<Kind::none>>},
      {"boolean", of_value<is_kind<Kind::boolean>>},
      {"false", of_value<is_flag<false>>},
      {"true", of_value<is_flag<true>>},
      {"integer", of_value<is_kind<Kind::integer>>},
      {"float", of_value<is_kind<Kind::real>>},
      {"lower", is_of_case},
      {"upper", is_of_case},
      {"string", of_value<is_kind<Kind::text>>},
      {"mapping", of_value<is_kind<Kind::dict>>},
      {"number", of_value<is_numeric>},
      {"sequence", of_value<is_sequence_like>},
      {"iterable", of_value<is_iterable>},
      {"callable", of_value<is_callable>},
      {"sameas", is_identical},
      {"escaped", of_value<is_markup>},
      {"in", is_in},
      {"==", compares<kEqual>},
      {"eq", compares<kEqual>},
      {"equalto", compares<kEqual>},
      {"!=", compares<kUnequal>},
      {"ne", compares<kUnequal>},
      {">", compares<kGreater>},
      {"gt", compares<kGreater>},
      {"greaterthan", compares<kGreater>},
      {">=", compares<kGreaterEqual>},
      {"ge", compares<kGreaterEqual>},
      {"<", compares<kLess>},
      {"lt", compares<kLess>},
      {"lessthan", compares<kLess>},
      {"<=", compares<kLessEqual>},
      {"le", compares<kLessEqual>},
  };
  return tests;
}

bool names_test(const TestCall& call) {
  (void)hash_of(call.budget, call.value);
  return call.value.is(Kind::text) && known_tests().contains(text_of(call.value));
}

}  // namespace

bool apply_test(Budget& budget, const std::string& name, const Value& value, const Arguments& arguments) {
  budget.step();
  const auto found = known_tests().find(name);
  if (found == known_tests().end()) fail(unknown_test(name) + ".");
  return found->second({.budget = budget, .name = name, .value = value, .arguments = arguments});
}

bool has_test(std::string_view name) { return known_tests().contains(name); }

std::string unknown_test(std::string_view name) {
  return fmt::format("the test '{}' does not exist", name.substr(0, 60));
}

}  // namespace lockstep::jinja
