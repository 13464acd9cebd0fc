#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tokenizers/jinja/budget.hpp"

namespace lockstep::jinja {

enum class Kind : std::uint8_t {
  undefined,
  none,
  boolean,
  integer,
  real,
  text,
  list,
  tuple,
  dict,
  range,
  view,
  iterator,
  name_space,
  loop,
  function,
  method,
  macro,
};

/// What a value shares with its copies.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};

/// The functions that every template has.
enum class Function : std::int64_t { range, dict, name_space, raise_exception, strftime_now };

/// A value of Python, as far as templates have them. Lists, tuples and dictionaries do not change: the
/// sandbox forbids it. Namespaces, loops and macros belong to the interpreter, and a value only refers to
/// them: so there are no cycles of owners.
struct Value {
  Kind kind = Kind::none;
  /// A text that the filter `safe` or `escape` has marked.
  bool markup = false;
  union {
    std::int64_t integer = 0;
    double real;
  };
  std::shared_ptr<const Object> object = nullptr;

  static Value none() { return {}; }
  static Value of(bool flag);
  static Value of(std::int64_t number);
  static Value of(double number);
  static Value of(Function function);
  static Value of(Kind kind, std::shared_ptr<const Object> object);
  /// Refers to an object of the interpreter.
  static Value borrowed(Kind kind, const Object& object);
  /// The text is valid UTF-8.
  static Value text(Budget& budget, std::string text, bool markup = false);
  static Value undefined(Budget& budget, std::string why);

  bool is(Kind other) const { return kind == other; }
  bool is_number() const { return kind == Kind::boolean || kind == Kind::integer || kind == Kind::real; }
  /// An integer, or true or false, which are 1 and 0.
  bool is_integer() const { return kind == Kind::boolean || kind == Kind::integer; }
  bool is_sequence() const { return kind == Kind::list || kind == Kind::tuple; }
  double as_real() const { return kind == Kind::real ? real : static_cast<double>(integer); }
  template <class T>
  const T& as() const {
    return static_cast<const T&>(*object);
  }
};

using Values = std::vector<Value>;

struct TextObject final : Object {
  std::string text;
  std::size_t characters = 0;
  bool is_ascii() const { return characters == text.size(); }
};

struct UndefinedObject final : Object {
  /// What an operation on it says.
  std::string why;
};

/// Of lists and tuples.
struct ListObject final : Object {
  Values items;
  std::size_t depth = 1;
};

struct DictObject final : Object {
  std::vector<std::pair<Value, Value>> entries;
  std::size_t depth = 1;
  /// The positions of keys by their hashes, for all but small dictionaries.
  std::unordered_multimap<std::size_t, std::size_t> positions;
};

struct RangeObject final : Object {
  std::int64_t start = 0;
  std::int64_t stop = 0;
  std::int64_t step = 1;
  std::size_t size() const;
};

enum class ViewKind : std::uint8_t { keys, values, items };

/// dict.keys(), dict.values() and dict.items().
struct ViewObject final : Object {
  ViewKind of = ViewKind::keys;
  Value dict;
};

/// What a filter like `select` gives: it is read once.
struct IteratorObject final : Object {
  Values items;
  mutable std::size_t next = 0;
  std::size_t depth = 1;
  const char* type = "generator";
};

struct MethodObject final : Object {
  Value self;
  std::string name;
};

struct NamespaceObject final : Object {
  mutable std::vector<std::pair<std::string, Value>> attributes;
};

/// The text of a value of Kind::text.
inline const std::string& text_of(const Value& value) { return value.as<TextObject>().text; }
inline const Values& items_of(const Value& value) { return value.as<ListObject>().items; }

Value make_list(Budget& budget, Values items, Kind kind = Kind::list);
Value make_tuple(Budget& budget, Values items);
Value make_iterator(Budget& budget, Values items, const char* type = "generator");
/// A key that comes again replaces the value of the first.
Value make_dict(Budget& budget, std::vector<std::pair<Value, Value>> entries);
/// The entry of a key, or null. Throws Failure for a key that has no hash.
const Value* find_key(Budget& budget, const Value& dict, const Value& key);
const Value* find_key(Budget& budget, const Value& dict, std::string_view key);

/// Python's name of a value's type: "str".
const char* type_name(const Value& value);
bool is_true(const Value& value);
/// The number of elements; throws Failure for what has none.
std::size_t length_of(const Value& value);
/// The elements that a loop over the value gives. Throws Failure for what is not iterable.
Values elements_of(Budget& budget, const Value& value);
bool is_iterable(const Value& value);
/// Throws Failure if the value is undefined.
void require_defined(const Value& value);

}  // namespace lockstep::jinja
