#include "tokenizers/jinja/value.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "tokenizers/jinja/comparison.hpp"
#include "tokenizers/utf8.hpp"

namespace lockstep::jinja {
namespace {

/// Lists within lists, beyond which Python's own recursion ends too.
constexpr std::size_t kDeepest = 200;
/// A dictionary with more keys than this has positions.
constexpr std::size_t kSmall = 12;

std::size_t depth_of(const Value& value) {
  if (value.is_sequence()) return value.as<ListObject>().depth;
  if (value.is(Kind::dict)) return value.as<DictObject>().depth;
  if (value.is(Kind::view)) return depth_of(value.as<ViewObject>().dict);
  if (value.is(Kind::method)) return depth_of(value.as<MethodObject>().self) + 1;
  if (value.is(Kind::iterator)) return value.as<IteratorObject>().depth;
  return 0;
}

std::size_t deeper(std::size_t depth, const Value& inner) {
  const auto all = std::max(depth, depth_of(inner) + 1);
  if (all > kDeepest) fail(fmt::format("lists are nested more than {} levels deep.", kDeepest));
  return all;
}

std::size_t position_of_key(Budget& budget, const DictObject& dict, const Value& key) {
  if (dict.positions.empty()) {
    (void)hash_of(budget, key);
    for (std::size_t i = 0; i < dict.entries.size(); ++i) {
      if (is_equal(budget, dict.entries[i].first, key)) return i;
    }
    return dict.entries.size();
  }
  const auto [begin, end] = dict.positions.equal_range(hash_of(budget, key));
  for (auto it = begin; it != end; ++it) {
    if (is_equal(budget, dict.entries[it->second].first, key)) return it->second;
  }
  return dict.entries.size();
}

}  // namespace

Value Value::of(bool flag) {
  Value value;
  value.kind = Kind::boolean;
  value.integer = flag ? 1 : 0;
  return value;
}

Value Value::of(std::int64_t number) {
  Value value;
  value.kind = Kind::integer;
  value.integer = number;
  return value;
}

Value Value::of(double number) {
  Value value;
  value.kind = Kind::real;
  value.real = number;
  return value;
}

Value Value::of(Function function) {
  auto value = of(static_cast<std::int64_t>(function));
  value.kind = Kind::function;
  return value;
}

Value Value::of(Kind kind, std::shared_ptr<const Object> object) {
  Value value;
  value.kind = kind;
  value.object = std::move(object);
  return value;
}

Value Value::borrowed(Kind kind, const Object& object) {
  return of(kind, std::shared_ptr<const Object>(std::shared_ptr<const Object>(), &object));
}

Value Value::text(Budget& budget, std::string text, bool markup) {
  budget.make(sizeof(TextObject) + text.size());
  auto object = std::make_shared<TextObject>();
  object->text = std::move(text);
  object->characters = tokenizer::check_utf8(object->text).characters;
  auto value = of(Kind::text, std::move(object));
  value.markup = markup;
  return value;
}

Value Value::undefined(Budget& budget, std::string why) {
  budget.make(sizeof(UndefinedObject) + why.size());
  auto object = std::make_shared<UndefinedObject>();
  object->why = std::move(why);
  return of(Kind::undefined, std::move(object));
}

std::size_t RangeObject::size() const {
  if (step > 0 && start < stop) {
    return (static_cast<std::uint64_t>(stop) - static_cast<std::uint64_t>(start) - 1) /
               static_cast<std::uint64_t>(step) +
           1;
  }
  if (step < 0 && start > stop) {
    return (static_cast<std::uint64_t>(start) - static_cast<std::uint64_t>(stop) - 1) /
               (0 - static_cast<std::uint64_t>(step)) +
           1;
  }
  return 0;
}

Value make_list(Budget& budget, Values items, Kind kind) {
  budget.make(sizeof(ListObject) + items.size() * sizeof(Value));
  auto object = std::make_shared<ListObject>();
  for (const auto& item : items) object->depth = deeper(object->depth, item);
  object->items = std::move(items);
  return Value::of(kind, std::move(object));
}

Value make_tuple(Budget& budget, Values items) { return make_list(budget, std::move(items), Kind::tuple); }

Value make_iterator(Budget& budget, Values items, const char* type) {
  budget.make(sizeof(IteratorObject) + items.size() * sizeof(Value));
  auto object = std::make_shared<IteratorObject>();
  for (const auto& item : items) object->depth = deeper(object->depth, item);
  object->items = std::move(items);
  object->type = type;
  return Value::of(Kind::iterator, std::move(object));
}

Value make_dict(Budget& budget, std::vector<std::pair<Value, Value>> entries) {
  budget.make(sizeof(DictObject) + entries.size() * (2 * sizeof(Value) + 32));
  auto object = std::make_shared<DictObject>();
  for (auto& [key, value] : entries) {
    object->depth = deeper(deeper(object->depth, key), value);
    const auto position = position_of_key(budget, *object, key);
    if (position < object->entries.size()) {
      object->entries[position].second = std::move(value);
      continue;
    }
    object->entries.emplace_back(std::move(key), std::move(value));
    if (object->entries.size() == kSmall) {
      for (std::size_t i = 0; i < kSmall; ++i)
        object->positions.emplace(hash_of(budget, object->entries[i].first), i);
    } else if (object->entries.size() > kSmall) {
      object->positions.emplace(hash_of(budget, object->entries.back().first), position);
    }
  }
  return Value::of(Kind::dict, std::move(object));
}

const Value* find_key(Budget& budget, const Value& dict, const Value& key) {
  const auto& object = dict.as<DictObject>();
  const auto position = position_of_key(budget, object, key);
  return position < object.entries.size() ? &object.entries[position].second : nullptr;
}

const Value* find_key(Budget& budget, const Value& dict, std::string_view key) {
  const auto& object = dict.as<DictObject>();
  if (object.positions.empty()) {
    for (const auto& [own, value] : object.entries) {
      if (own.is(Kind::text) && text_of(own) == key) return &value;
    }
    return nullptr;
  }
  return find_key(budget, dict, Value::text(budget, std::string(key)));
}

const char* type_name(const Value& value) {
  switch (value.kind) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::text:
      return "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::dict:
      return "dict";
    case Kind::range:
      return "range";
    case Kind::view: {
      const auto of = value.as<ViewObject>().of;
      return of == ViewKind::keys ? "dict_keys" : of == ViewKind::values ? "dict_values" : "dict_items";
    }
    case Kind::iterator:
      return value.as<IteratorObject>().type;
    case Kind::name_space:
      return "Namespace";
    case Kind::loop:
      return "LoopContext";
    case Kind::function:
      return "function";
    case Kind::method:
      return "builtin_function_or_method";
    case Kind::macro:
      return "Macro";
  }
  return "";
}

bool is_true(const Value& value) {
  switch (value.kind) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return value.integer != 0;
    case Kind::real:
      return value.real != 0;
    case Kind::text:
      return !text_of(value).empty();
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::range:
    case Kind::view:
      return length_of(value) != 0;
    default:
      return true;
  }
}

std::size_t length_of(const Value& value) {
  switch (value.kind) {
    case Kind::undefined:
      return 0;
    case Kind::text:
      return value.as<TextObject>().characters;
    case Kind::list:
    case Kind::tuple:
      return items_of(value).size();
    case Kind::dict:
      return value.as<DictObject>().entries.size();
    case Kind::range:
      return value.as<RangeObject>().size();
    case Kind::view:
      return length_of(value.as<ViewObject>().dict);
    default:
      fail(fmt::format("a value of type '{}' has no length.", type_name(value)));
  }
}

bool is_iterable(const Value& value) {
  switch (value.kind) {
    case Kind::undefined:
    case Kind::text:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::range:
    case Kind::view:
    case Kind::iterator:
    case Kind::loop:
      return true;
    default:
      return false;
  }
}

Values elements_of(Budget& budget, const Value& value) {
  Values elements;
  const auto room = [&](std::size_t count) {
    budget.step(count);
    budget.make(count * sizeof(Value));
    elements.reserve(count);
  };
  switch (value.kind) {
    case Kind::undefined:
      return elements;
    case Kind::text: {
      room(length_of(value));
      const auto& text = text_of(value);
      for (std::size_t position = 0; position < text.size();) {
        const auto length = tokenizer::sequence_length(text[position]);
        elements.push_back(Value::text(budget, text.substr(position, length), value.markup));
        position += length;
      }
      return elements;
    }
    case Kind::list:
    case Kind::tuple:
      room(length_of(value));
      elements = items_of(value);
      return elements;
    case Kind::dict:
      room(length_of(value));
      for (const auto& entry : value.as<DictObject>().entries) elements.push_back(entry.first);
      return elements;
    case Kind::range: {
      const auto& range = value.as<RangeObject>();
      room(range.size());
      for (std::size_t i = 0; i < range.size(); ++i) {
        elements.push_back(Value::of(range.start + static_cast<std::int64_t>(i) * range.step));
      }
      return elements;
    }
    case Kind::view: {
      const auto& view = value.as<ViewObject>();
      room(length_of(view.dict));
      for (const auto& [key, own] : view.dict.as<DictObject>().entries) {
        if (view.of == ViewKind::items) {
          elements.push_back(make_tuple(budget, {key, own}));
        } else {
          elements.push_back(view.of == ViewKind::keys ? key : own);
        }
      }
      return elements;
    }
    case Kind::iterator: {
      const auto& iterator = value.as<IteratorObject>();
      room(iterator.items.size() - iterator.next);
      elements.assign(iterator.items.begin() + static_cast<std::ptrdiff_t>(iterator.next),
                      iterator.items.end());
      iterator.next = iterator.items.size();
      return elements;
    }
    default:
      fail(fmt::format("a value of type '{}' is not iterable.", type_name(value)));
  }
}

void require_defined(const Value& value) {
  if (value.is(Kind::undefined)) fail(value.as<UndefinedObject>().why);
}

}  // namespace lockstep::jinja
