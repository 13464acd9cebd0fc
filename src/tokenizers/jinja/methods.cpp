#include "tokenizers/jinja/methods.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "tokenizers/jinja/comparison.hpp"
#include "tokenizers/jinja/loop.hpp"
#include "tokenizers/jinja/text_methods.hpp"

namespace lockstep::jinja {
namespace {

template <std::size_t count>
bool is_one_of(const std::array<std::string_view, count>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

constexpr std::array<std::string_view, 6> kDictMethods = {"get",    "items", "keys",
                                                          "values", "copy",  "fromkeys"};
constexpr std::array<std::string_view, 5> kDictChanges = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::array<std::string_view, 3> kListMethods = {"count", "index", "copy"};
constexpr std::array<std::string_view, 8> kListChanges = {"append", "clear", "pop",    "reverse",
                                                          "insert", "sort",  "extend", "remove"};
/// Of numbers; none of them is supported.
constexpr std::array<std::string_view, 13> kNumberMethods = {
    "real",     "imag",       "conjugate", "numerator", "denominator",      "bit_length", "bit_count",
    "to_bytes", "from_bytes", "hex",       "fromhex",   "as_integer_ratio", "is_integer"};

Value view_of(Budget& budget, const Value& dict, ViewKind kind) {
  budget.make(sizeof(ViewObject));
  auto view = std::make_shared<ViewObject>();
  view->of = kind;
  view->dict = dict;
  return Value::of(Kind::view, std::move(view));
}

Value call_dict_method(Budget& budget, const MethodObject& method, const Arguments& arguments) {
  const auto& dict = method.self;
  if (method.name == "get") {
    const Bound bound("get()", arguments, {"key", "default"}, 1);
    const auto* found = find_key(budget, dict, bound[0]);
    if (found != nullptr) return *found;
    return bound.has(1) ? bound[1] : Value::none();
  }
  const Bound bound(method.name + "()", arguments, {});
  if (method.name == "items") return view_of(budget, dict, ViewKind::items);
  if (method.name == "keys") return view_of(budget, dict, ViewKind::keys);
  if (method.name == "values") return view_of(budget, dict, ViewKind::values);
  if (method.name == "copy") return dict;
  fail(fmt::format("the method '{}' of dictionaries is not supported in chat templates.", method.name));
}

Value call_list_method(Budget& budget, const MethodObject& method, const Arguments& arguments) {
  if (method.name == "copy") return method.self;
  const auto items = elements_of(budget, method.self);
  if (method.name == "count") {
    const Bound bound("count()", arguments, {"value"}, 1);
    std::int64_t count = 0;
    for (const auto& item : items) count += is_equal(budget, item, bound[0]) ? 1 : 0;
    return Value::of(count);
  }
  const Bound bound("index()", arguments, {"value", "start", "stop"}, 1);
  const auto size = static_cast<std::int64_t>(items.size());
  const auto clip = [&](std::int64_t position) {
    return std::clamp(position < 0 ? position + size : position, std::int64_t{0}, size);
  };
  const auto stop = clip(bound.integer(2, size));
  for (auto position = clip(bound.integer(1, 0)); position < stop; ++position) {
    if (is_equal(budget, items[static_cast<std::size_t>(position)], bound[0])) return Value::of(position);
  }
  fail("index(): the list has no such element.");
}

}  // namespace

bool has_method(const Value& object, const std::string& name) {
  switch (object.kind) {
    case Kind::text:
      return is_text_method(name);
    case Kind::dict:
      return is_one_of(kDictMethods, name);
    case Kind::list:
      return is_one_of(kListMethods, name);
    case Kind::tuple:
    case Kind::range:
      return name == "count" || name == "index";
    case Kind::boolean:
    case Kind::integer:
    case Kind::real:
      return is_one_of(kNumberMethods, name);
    default:
      return false;
  }
}

bool changes_object(const Value& object, const std::string& name) {
  if (object.is(Kind::dict)) return is_one_of(kDictChanges, name);
  return object.is(Kind::list) && is_one_of(kListChanges, name);
}

Value call_method(Budget& budget, const MethodObject& method, const Arguments& arguments) {
  switch (method.self.kind) {
    case Kind::text:
      return call_text_method(budget, method.self, method.name, arguments);
    case Kind::dict:
      return call_dict_method(budget, method, arguments);
    case Kind::list:
    case Kind::tuple:
    case Kind::range:
      return call_list_method(budget, method, arguments);
    case Kind::loop:
      return call_loop_method(budget, method.self, method.name, arguments);
    default:
      fail(fmt::format("the method '{}' of numbers is not supported in chat templates.", method.name));
  }
}

}  // namespace lockstep::jinja
