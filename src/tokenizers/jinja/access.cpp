#include "tokenizers/jinja/access.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "tokenizers/jinja/characters.hpp"
#include "tokenizers/jinja/comparison.hpp"
#include "tokenizers/jinja/loop.hpp"
#include "tokenizers/jinja/methods.hpp"
#include "tokenizers/jinja/text_form.hpp"
#include "tokenizers/utf8.hpp"

namespace lockstep::jinja {
namespace {

Value unsafe(Budget& budget, const Value& object, const std::string& name) {
  return Value::undefined(
      budget, fmt::format("the template must not use '{}' of a value of type '{}': the sandbox forbids it.",
                          name, type_name(object)));
}

Value missing(Budget& budget, const Value& object, const std::string& name) {
  return Value::undefined(budget, fmt::format("a value of type '{}' has no attribute or element '{}'.",
                                              type_name(object), name.substr(0, 100)));
}

/// The element at a position, which counts from the end if it is negative; nothing if there is none.
std::optional<Value> element_at(Budget& budget, const Value& object, std::int64_t position) {
  const auto length = static_cast<std::int64_t>(length_of(object));
  if (position < 0) position += length;
  if (position < 0 || position >= length) return std::nullopt;
  const auto at = static_cast<std::size_t>(position);
  if (object.is(Kind::range))
    return Value::of(object.as<RangeObject>().start + position * object.as<RangeObject>().step);
  if (!object.is(Kind::text)) return items_of(object)[at];
  const auto& text = text_of(object);
  if (!object.as<TextObject>().is_ascii()) budget.read(text.size());
  const auto begin = object.as<TextObject>().is_ascii() ? at : byte_of_character(text, at);
  return Value::text(budget, text.substr(begin, tokenizer::sequence_length(text[begin])), object.markup);
}

/// The element of a subscript; nothing if there is none, or the object has none.
std::optional<Value> find_element(Budget& budget, const Value& object, const Value& subscript) {
  switch (object.kind) {
    case Kind::dict: {
      if (subscript.is(Kind::list) || subscript.is(Kind::dict)) return std::nullopt;
      const auto* found = find_key(budget, object, subscript);
      if (found == nullptr) return std::nullopt;
      return *found;
    }
    case Kind::text:
    case Kind::list:
    case Kind::tuple:
    case Kind::range:
      if (!subscript.is_integer()) return std::nullopt;
      return element_at(budget, object, subscript.integer);
    default:
      return std::nullopt;
  }
}

std::optional<Value> find_range_attribute(const RangeObject& range, const std::string& name) {
  if (name == "start") return Value::of(range.start);
  if (name == "stop") return Value::of(range.stop);
  if (name == "step") return Value::of(range.step);
  return std::nullopt;
}

std::int64_t bound_of(const Value& bound, std::int64_t otherwise) {
  if (bound.is(Kind::none)) return otherwise;
  require_defined(bound);
  if (!bound.is_integer())
    fail(fmt::format("a slice needs integers, not a value of type '{}'.", type_name(bound)));
  return bound.integer;
}

/// The positions of a slice: its first, its step and their number.
struct Positions {
  std::int64_t first = 0;
  std::int64_t step = 1;
  std::size_t count = 0;
};

Positions positions_of(std::int64_t length, const Value& start, const Value& stop, const Value& step) {
  Positions positions;
  positions.step = bound_of(step, 1);
  if (positions.step == 0) fail("the step of a slice cannot be zero.");
  const bool forward = positions.step > 0;
  const auto clip = [&](std::int64_t bound) {
    if (bound < 0) bound = bound + length < 0 ? (forward ? 0 : -1) : bound + length;
    return std::min(bound, forward ? length : length - 1);
  };
  positions.first = start.is(Kind::none) ? (forward ? 0 : length - 1) : clip(bound_of(start, 0));
  const auto end = stop.is(Kind::none) ? (forward ? length : -1) : clip(bound_of(stop, 0));
  RangeObject range;
  range.start = positions.first;
  range.stop = end;
  range.step = positions.step;
  positions.count = range.size();
  return positions;
}

Value text_slice(Budget& budget, const Value& object, const Positions& positions) {
  const auto& text = text_of(object);
  budget.read(text.size());
  if (positions.step == 1) {
    const auto is_ascii = object.as<TextObject>().is_ascii();
    const auto first = static_cast<std::size_t>(positions.first);
    const auto begin = is_ascii ? first : byte_of_character(text, first);
    const auto rest = std::string_view(text).substr(std::min(begin, text.size()));
    return Value::text(
        budget,
        std::string(rest.substr(0, is_ascii ? positions.count : byte_of_character(rest, positions.count))),
        object.markup);
  }
  budget.make(text.size() * 4);
  const auto characters = characters_of(text);
  std::u32string taken;
  for (std::size_t i = 0; i < positions.count; ++i) {
    taken +=
        characters[static_cast<std::size_t>(positions.first + static_cast<std::int64_t>(i) * positions.step)];
  }
  return Value::text(budget, text_of_characters(taken), object.markup);
}

}  // namespace

std::optional<Value> find_attribute(Budget& budget, const Value& object, const std::string& name) {
  if (name.size() > 4 && name.starts_with("__") && name.ends_with("__")) return unsafe(budget, object, name);
  switch (object.kind) {
    case Kind::name_space:
      for (const auto& [own, value] : object.as<NamespaceObject>().attributes) {
        if (own == name) return value;
      }
      return std::nullopt;
    case Kind::loop:
      return loop_attribute(budget, object, name);
    case Kind::range:
      if (auto found = find_range_attribute(object.as<RangeObject>(), name)) return found;
      break;
    default:
      break;
  }
  if (changes_object(object, name)) return unsafe(budget, object, name);
  if (!has_method(object, name)) return std::nullopt;
  budget.make(sizeof(MethodObject) + name.size());
  auto method = std::make_shared<MethodObject>();
  method->self = object;
  method->name = name;
  return Value::of(Kind::method, std::move(method));
}

Value get_attribute(Budget& budget, const Value& object, const std::string& name) {
  require_defined(object);
  if (auto found = find_attribute(budget, object, name)) return *found;
  if (object.is(Kind::dict)) {
    if (const auto* element = find_key(budget, object, std::string_view(name))) return *element;
  }
  return missing(budget, object, name);
}

Value get_item(Budget& budget, const Value& object, const Value& subscript) {
  require_defined(object);
  if (auto found = find_element(budget, object, subscript)) return *found;
  if (subscript.is(Kind::text)) {
    if (auto found = find_attribute(budget, object, text_of(subscript))) return *found;
  }
  return missing(budget, object, subscript.is(Kind::text) ? text_of(subscript) : to_repr(budget, subscript));
}

Value get_slice(Budget& budget, const Value& object, const Value& start, const Value& stop,
                const Value& step) {
  require_defined(object);
  if (!object.is(Kind::text) && !object.is_sequence() && !object.is(Kind::range)) {
    fail(fmt::format("a value of type '{}' has no slices.", type_name(object)));
  }
  const auto positions = positions_of(static_cast<std::int64_t>(length_of(object)), start, stop, step);
  budget.step(positions.count);
  if (object.is(Kind::text)) return text_slice(budget, object, positions);
  if (object.is(Kind::range)) {
    auto range = std::make_shared<RangeObject>();
    const auto& own = object.as<RangeObject>();
    range->start = own.start + (positions.count == 0 ? 0 : positions.first * own.step);
    std::int64_t length = 0;
    if (__builtin_mul_overflow(own.step, positions.step, &range->step) ||
        __builtin_mul_overflow(static_cast<std::int64_t>(positions.count), range->step, &length) ||
        __builtin_add_overflow(range->start, length, &range->stop)) {
      fail("an integer is beyond 64 bits.");
    }
    return Value::of(Kind::range, std::move(range));
  }
  budget.make(positions.count * sizeof(Value));
  Values items;
  items.reserve(positions.count);
  for (std::size_t i = 0; i < positions.count; ++i) {
    items.push_back(items_of(
        object)[static_cast<std::size_t>(positions.first + static_cast<std::int64_t>(i) * positions.step)]);
  }
  return make_list(budget, std::move(items), object.kind);
}

}  // namespace lockstep::jinja
