#include "tokenizers/jinja/comparison.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string_view>

namespace lockstep::jinja {
namespace {

template <class Compare>
bool compare_numbers(const Value& left, const Value& right, const Compare& compare) {
  if (left.is_integer() && right.is_integer()) return compare(left.integer, right.integer);
  return compare(left.as_real(), right.as_real());
}

template <class Compare>
bool compare_ordered(Budget& budget, const Value& left, const Value& right, const char* sign,
                     const Compare& compare) {
  require_defined(left);
  require_defined(right);
  if (left.is_number() && right.is_number()) return compare_numbers(left, right, compare);
  if (left.is(Kind::text) && right.is(Kind::text)) {
    budget.read(std::min(text_of(left).size(), text_of(right).size()));
    return compare(text_of(left).compare(text_of(right)), 0);
  }
  if (left.kind == right.kind && left.is_sequence()) {
    const auto& a = items_of(left);
    const auto& b = items_of(right);
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      if (!is_equal(budget, a[i], b[i])) return compare_ordered(budget, a[i], b[i], sign, compare);
    }
    return compare(a.size(), b.size());
  }
  fail(fmt::format("'{}' is not supported between values of the types '{}' and '{}'.", sign, type_name(left),
                   type_name(right)));
}

bool equal_items(Budget& budget, const Values& left, const Values& right) {
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (!is_equal(budget, left[i], right[i])) return false;
  }
  return true;
}

bool equal_dicts(Budget& budget, const Value& left, const Value& right) {
  if (length_of(left) != length_of(right)) return false;
  for (const auto& [key, value] : left.as<DictObject>().entries) {
    const auto* other = find_key(budget, right, key);
    if (other == nullptr || !is_equal(budget, value, *other)) return false;
  }
  return true;
}

}  // namespace

bool is_equal(Budget& budget, const Value& left, const Value& right) {
  budget.step();
  if (left.is_number() && right.is_number()) {
    return compare_numbers(left, right, [](auto a, auto b) { return a == b; });
  }
  if (left.kind != right.kind) return false;
  switch (left.kind) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::text:
      budget.read(std::min(text_of(left).size(), text_of(right).size()));
      return text_of(left) == text_of(right);
    case Kind::list:
    case Kind::tuple:
      return left.object == right.object || equal_items(budget, items_of(left), items_of(right));
    case Kind::dict:
      return left.object == right.object || equal_dicts(budget, left, right);
    case Kind::range:
      return equal_items(budget, elements_of(budget, left), elements_of(budget, right));
    case Kind::view:
      if (left.as<ViewObject>().of != right.as<ViewObject>().of ||
          left.as<ViewObject>().of == ViewKind::values) {
        return left.object == right.object;
      }
      return equal_items(budget, elements_of(budget, left), elements_of(budget, right));
    case Kind::function:
      return left.integer == right.integer;
    default:
      return left.object == right.object;
  }
}

bool is_less(Budget& budget, const Value& left, const Value& right) {
  return compare_ordered(budget, left, right, "<", [](auto a, auto b) { return a < b; });
}

bool is_less_or_equal(Budget& budget, const Value& left, const Value& right) {
  return compare_ordered(budget, left, right, "<=", [](auto a, auto b) { return a <= b; });
}

bool contains(Budget& budget, const Value& container, const Value& element) {
  switch (container.kind) {
    case Kind::undefined:
      return false;
    case Kind::text:
      if (!element.is(Kind::text)) {
        require_defined(element);
        fail(fmt::format("'in <string>' needs a string to its left, not a value of type '{}'.",
                         type_name(element)));
      }
      budget.read(text_of(container).size());
      return text_of(container).find(text_of(element)) != std::string::npos;
    case Kind::dict:
      return find_key(budget, container, element) != nullptr;
    default:
      break;
  }
  if (!is_iterable(container)) {
    fail(fmt::format("'in' needs a list, a dictionary or a string to its right, not a value of type '{}'.",
                     type_name(container)));
  }
  if (container.is_sequence()) {
    for (const auto& item : items_of(container)) {
      if (is_equal(budget, item, element)) return true;
    }
    return false;
  }
  if (container.is(Kind::iterator)) {
    const auto& iterator = container.as<IteratorObject>();
    while (iterator.next < iterator.items.size()) {
      if (is_equal(budget, iterator.items[iterator.next++], element)) return true;
    }
    return false;
  }
  for (const auto& item : elements_of(budget, container)) {
    if (is_equal(budget, item, element)) return true;
  }
  return false;
}

std::size_t hash_of(Budget& budget, const Value& value) {
  budget.step();
  switch (value.kind) {
    case Kind::none:
    case Kind::undefined:
      return 0;
    case Kind::boolean:
    case Kind::integer:
      return std::hash<std::int64_t>{}(value.integer);
    case Kind::real:
      if (std::abs(value.real) < 9e18 && std::floor(value.real) == value.real) {
        return std::hash<std::int64_t>{}(static_cast<std::int64_t>(value.real));
      }
      return std::hash<double>{}(value.real);
    case Kind::text:
      budget.read(text_of(value).size());
      return std::hash<std::string_view>{}(text_of(value));
    case Kind::tuple: {
      std::size_t hash = 17;
      for (const auto& item : items_of(value)) hash = hash * 31 + hash_of(budget, item);
      return hash;
    }
    case Kind::list:
    case Kind::dict:
    case Kind::view:
      fail(fmt::format("a value of type '{}' cannot be a key.", type_name(value)));
    default:
      return std::hash<const void*>{}(value.object.get());
  }
}

bool is_same(const Value& left, const Value& right) {
  if (left.kind != right.kind) return false;
  switch (left.kind) {
    case Kind::none:
      return true;
    case Kind::boolean:
    case Kind::function:
    case Kind::integer:
      return left.integer == right.integer;
    case Kind::real:
      return left.real == right.real;
    case Kind::text:
      return text_of(left) == text_of(right);
    default:
      return left.object == right.object;
  }
}

}  // namespace lockstep::jinja
