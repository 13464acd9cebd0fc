#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// What a pickle of Python describes, as data. Calls are not made: they are values, too.
struct PickleValue {
  enum class Kind {
    none,
    boolean,      // number
    integer,      // number
    big_integer,  // text: its bytes, the lowest first; an integer of more than 64 bits
    real,         // without its value
    text,         // text: as in the file, not checked to be UTF-8
    bytes,        // text
    tuple,        // items
    list,         // items
    dict,  // items: a key, its value, the next key, ...; also collections.OrderedDict, without its attributes
    global,      // text: module and name of a Python object, "torch._utils._rebuild_tensor_v2"
    call,        // items: what is called, and the tuple of its arguments
    persistent,  // items: the identifier of an object that is stored elsewhere
    mark,        // only while reading
  };
  Kind kind = Kind::none;
  std::int64_t number = 0;
  std::string text = {};
  /// Owned by the Pickle. A list or dict may contain itself.
  std::vector<const PickleValue*> items = {};
};

/// The kind in Python's words, for messages.
const char* name_of_kind(PickleValue::Kind kind) noexcept;

/// One pickle, read without executing anything.
class Pickle {
 public:
  /// Whether a global ("module.name") may occur.
  using IsAllowed = std::function<bool(const std::string& global)>;

  /// Reads the first pickle of `bytes`: protocols 2 to 5, with the opcodes that Python's pickler writes for
  /// containers, numbers, texts, globals, calls and persistent identifiers. `file` is for messages. Throws
  /// DataError, with the position, if it is truncated or malformed, has more values than a model's, uses
  /// another opcode, or a global that is not allowed.
  Pickle(std::string_view bytes, const std::string& file, const IsAllowed& is_allowed);
  Pickle(Pickle&&) = default;
  Pickle& operator=(Pickle&&) = default;
  Pickle(const Pickle&) = delete;
  Pickle& operator=(const Pickle&) = delete;

  const PickleValue& root() const noexcept { return *root_; }
  /// Calls `visit` with every value, also those that the root does not contain.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const auto& value : values_) visit(value);
  }
  /// How many of the bytes it takes.
  std::size_t size() const noexcept { return size_; }

 private:
  std::deque<PickleValue> values_;
  const PickleValue* root_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lockstep
