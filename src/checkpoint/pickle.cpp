#include "checkpoint/pickle.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <utility>

#include "lockstep/core/error.hpp"

// A pickle is a program for a machine with a stack and a memo. In Python, two of its instructions run code:
// REDUCE calls what lies on the stack, and BUILD calls __setstate__. This reader has the same stack, but only
// describes: REDUCE puts a value of kind `call` on it, and whoever reads the tree decides what the few calls
// that torch.save writes mean. A name of Python's that is not on the caller's list ends the reading where it
// occurs, as does an instruction that the pickles of tensors do not contain.
//
// A hostile pickle may nest a million lists, or put a list into itself. So values do not own each other: all
// of them are in one deque, whose destruction needs no recursion, and nothing here walks the tree. Each
// instruction creates at most one value, and their number is limited, so memory is, too.

namespace lockstep {
namespace {

using Kind = PickleValue::Kind;

/// A tensor takes about 25 values: enough for 200,000 tensors.
constexpr std::size_t kMostValues = 5'000'000;
/// What a message shows of a foreign name.
constexpr std::size_t kShown = 100;

constexpr const char* kOrderedDict = "collections.OrderedDict";

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& file, const Pickle::IsAllowed& is_allowed,
         std::deque<PickleValue>& values)
      : bytes_(bytes), file_(file), is_allowed_(is_allowed), values_(values) {}

  const PickleValue* read() {
    while (!is_stopped_) {
      opcode_begin_ = position_;
      execute(static_cast<unsigned char>(take(1)[0]));
    }
    return pop();
  }

  std::size_t position() const noexcept { return position_; }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(
        fmt::format("'{}' is not a pickle of tensors that can be read: {} (at byte {} of the pickle).", file_,
                    what, opcode_begin_));
  }

  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size() - position_) fail("it ends in the middle of a value");
    const auto taken = bytes_.substr(position_, size);
    position_ += size;
    return taken;
  }

  std::uint64_t take_number(std::size_t size) {
    std::uint64_t number = 0;
    const auto bytes = take(size);
    for (std::size_t i = 0; i < size; ++i)
      number |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
    return number;
  }

  std::string take_line() {
    const auto end = bytes_.find('\n', position_);
    if (end == std::string_view::npos) fail("a name has no end");
    const std::string line(take(end - position_));
    take(1);
    return line;
  }

  PickleValue& push(Kind kind) {
    if (values_.size() == kMostValues) fail(fmt::format("it has more than {} values", kMostValues));
    values_.push_back({.kind = kind});
    stack_.push_back(&values_.back());
    return values_.back();
  }

  void push_number(std::int64_t number, Kind kind = Kind::integer) { push(kind).number = number; }
  void push_text(std::uint64_t size, Kind kind = Kind::text) { push(kind).text = take(size); }

  /// Integers of any length, in two's complement.
  void push_long(std::uint64_t size) {
    const auto bytes = take(size);
    if (size > 8) {
      push(Kind::big_integer).text = bytes;
      return;
    }
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < size; ++i)
      number |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
    const bool is_negative = size > 0 && (static_cast<unsigned char>(bytes[size - 1]) & 0x80) != 0;
    if (is_negative && size < 8) number |= ~std::uint64_t{0} << (8 * size);
    push_number(static_cast<std::int64_t>(number));
  }

  PickleValue* top() {
    if (stack_.empty() || stack_.back()->kind == Kind::mark) fail("a value is missing on its stack");
    return stack_.back();
  }

  PickleValue* pop() {
    auto* value = top();
    stack_.pop_back();
    return value;
  }

  /// The values above the last mark, which is removed.
  std::vector<const PickleValue*> pop_to_mark() {
    auto begin = stack_.size();
    while (begin > 0 && stack_[begin - 1]->kind != Kind::mark) --begin;
    if (begin == 0) fail("a mark is missing on its stack");
    std::vector<const PickleValue*> items(stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
    stack_.resize(begin - 1);
    return items;
  }

  void push_tuple(std::size_t size) {
    std::vector<const PickleValue*> items(size);
    for (std::size_t i = size; i > 0; --i) items[i - 1] = pop();
    push(Kind::tuple).items = std::move(items);
  }

  /// Adds to the list, or the dict, on top of the stack.
  void add_to_top(Kind kind, const std::vector<const PickleValue*>& items) {
    auto* target = top();
    if (target->kind != kind || (kind == Kind::dict && items.size() % 2 != 0))
      fail(fmt::format("items are added to a {}", name_of_kind(target->kind)));
    target->items.insert(target->items.end(), items.begin(), items.end());
  }

  void add_one(Kind kind, std::size_t count) {
    std::vector<const PickleValue*> items(count);
    for (std::size_t i = count; i > 0; --i) items[i - 1] = pop();
    add_to_top(kind, items);
  }

  void push_global(const std::string& module, const std::string& name) {
    const std::string global = module + "." + name;
    if (!is_allowed_(global)) {
      fail(
          fmt::format("it uses Python's '{}', and only tensors are read, because other objects may run code. "
                      "In Python, save "
                      "the model's tensors alone: safetensors.torch.save_model(model, path)",
                      global.substr(0, kShown)));
    }
    push(Kind::global).text = global;
  }

  void push_global_of_stack() {
    const auto* name = pop();
    const auto* module = pop();
    if (name->kind != Kind::text || module->kind != Kind::text) fail("the name of a global is not a text");
    push_global(module->text, name->text);
  }

  void push_call() {
    const auto* arguments = pop();
    const auto* callee = pop();
    if (callee->kind != Kind::global || arguments->kind != Kind::tuple)
      fail(fmt::format("it calls a {}", name_of_kind(callee->kind)));
    if (callee->text == kOrderedDict) return push_ordered_dict(*arguments);
    push(Kind::call).items = {callee, arguments};
  }

  /// OrderedDict() or, from Python 2, OrderedDict([[key, value], ...]).
  void push_ordered_dict(const PickleValue& arguments) {
    std::vector<const PickleValue*> items;
    for (const auto* list : arguments.items) {
      if (list->kind != Kind::list) fail("an OrderedDict is made of something that is not a list of pairs");
      for (const auto* pair : list->items) {
        if (pair->items.size() != 2) fail("an OrderedDict is made of something that is not a list of pairs");
        items.insert(items.end(), pair->items.begin(), pair->items.end());
      }
    }
    // The only copy of items: one list may be given to many calls.
    copied_items_ += items.size();
    if (copied_items_ > kMostValues) fail(fmt::format("it copies more than {} values", kMostValues));
    push(Kind::dict).items = std::move(items);
  }

  /// Attributes of an OrderedDict: a state dictionary has its modules' versions there.
  void drop_attributes() {
    pop();
    if (top()->kind != Kind::dict) fail(fmt::format("it sets attributes of a {}", name_of_kind(top()->kind)));
  }

  void memoize(std::uint64_t index) { memo_[index] = top(); }

  void push_memo(std::uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) fail(fmt::format("it refers to value {}, which it has not stored", index));
    stack_.push_back(found->second);
  }

  void check_protocol() {
    const auto protocol = take_number(1);
    if (protocol < 2 || protocol > 5) fail(fmt::format("it has protocol {}, and 2 to 5 are read", protocol));
  }

  /// No value that a tensor needs.
  void push_real() {
    take(8);
    push(Kind::real);
  }

  void push_all(Kind kind) {
    auto items = pop_to_mark();
    push(kind).items = std::move(items);
  }

  void push_global_of_lines() {
    const auto module = take_line();
    push_global(module, take_line());
  }

  void push_persistent() {
    const auto* identifier = pop();
    push(Kind::persistent).items = {identifier};
  }

  struct Instruction {
    unsigned char opcode;
    void (*execute)(Reader&);
  };

  void execute(unsigned char opcode) {
    // With the names that Python's module pickletools gives them.
    static constexpr Instruction kInstructions[] = {
        {'N', [](Reader& r) { r.push(Kind::none); }},                                          // NONE
        {0x88, [](Reader& r) { r.push_number(1, Kind::boolean); }},                            // NEWTRUE
        {0x89, [](Reader& r) { r.push_number(0, Kind::boolean); }},                            // NEWFALSE
        {'J', [](Reader& r) { r.push_number(static_cast<std::int32_t>(r.take_number(4))); }},  // BININT
        {'K', [](Reader& r) { r.push_number(static_cast<std::int64_t>(r.take_number(1))); }},  // BININT1
        {'M', [](Reader& r) { r.push_number(static_cast<std::int64_t>(r.take_number(2))); }},  // BININT2
        {0x8a, [](Reader& r) { r.push_long(r.take_number(1)); }},                              // LONG1
        {0x8b, [](Reader& r) { r.push_long(r.take_number(4)); }},                              // LONG4
        {'G', [](Reader& r) { r.push_real(); }},                                               // BINFLOAT
        {'X', [](Reader& r) { r.push_text(r.take_number(4)); }},                               // BINUNICODE
        {0x8c, [](Reader& r) { r.push_text(r.take_number(1)); }},               // SHORT_BINUNICODE
        {0x8d, [](Reader& r) { r.push_text(r.take_number(8)); }},               // BINUNICODE8
        {'T', [](Reader& r) { r.push_text(r.take_number(4)); }},                // BINSTRING
        {'U', [](Reader& r) { r.push_text(r.take_number(1)); }},                // SHORT_BINSTRING
        {'B', [](Reader& r) { r.push_text(r.take_number(4), Kind::bytes); }},   // BINBYTES
        {'C', [](Reader& r) { r.push_text(r.take_number(1), Kind::bytes); }},   // SHORT_BINBYTES
        {0x8e, [](Reader& r) { r.push_text(r.take_number(8), Kind::bytes); }},  // BINBYTES8
        {'(', [](Reader& r) { r.push(Kind::mark); }},                           // MARK
        {')', [](Reader& r) { r.push(Kind::tuple); }},                          // EMPTY_TUPLE
        {0x85, [](Reader& r) { r.push_tuple(1); }},                             // TUPLE1
        {0x86, [](Reader& r) { r.push_tuple(2); }},                             // TUPLE2
        {0x87, [](Reader& r) { r.push_tuple(3); }},                             // TUPLE3
        {'t', [](Reader& r) { r.push_all(Kind::tuple); }},                      // TUPLE
        {']', [](Reader& r) { r.push(Kind::list); }},                           // EMPTY_LIST
        {'l', [](Reader& r) { r.push_all(Kind::list); }},                       // LIST
        {'a', [](Reader& r) { r.add_one(Kind::list, 1); }},                     // APPEND
        {'e', [](Reader& r) { r.add_to_top(Kind::list, r.pop_to_mark()); }},    // APPENDS
        {'}', [](Reader& r) { r.push(Kind::dict); }},                           // EMPTY_DICT
        {'s', [](Reader& r) { r.add_one(Kind::dict, 2); }},                     // SETITEM
        {'u', [](Reader& r) { r.add_to_top(Kind::dict, r.pop_to_mark()); }},    // SETITEMS
        {0x80, [](Reader& r) { r.check_protocol(); }},                          // PROTO
        {0x95, [](Reader& r) { r.take(8); }},                                   // FRAME
        {'q', [](Reader& r) { r.memoize(r.take_number(1)); }},                  // BINPUT
        {'r', [](Reader& r) { r.memoize(r.take_number(4)); }},                  // LONG_BINPUT
        {0x94, [](Reader& r) { r.memoize(r.memo_.size()); }},                   // MEMOIZE
        {'h', [](Reader& r) { r.push_memo(r.take_number(1)); }},                // BINGET
        {'j', [](Reader& r) { r.push_memo(r.take_number(4)); }},                // LONG_BINGET
        {'c', [](Reader& r) { r.push_global_of_lines(); }},                     // GLOBAL
        {0x93, [](Reader& r) { r.push_global_of_stack(); }},                    // STACK_GLOBAL
        {'R', [](Reader& r) { r.push_call(); }},                                // REDUCE
        {'b', [](Reader& r) { r.drop_attributes(); }},                          // BUILD
        {'Q', [](Reader& r) { r.push_persistent(); }},                          // BINPERSID
        {'0', [](Reader& r) { r.pop(); }},                                      // POP
        {'.', [](Reader& r) { r.is_stopped_ = true; }},                         // STOP
    };
    const auto* found = std::find_if(std::begin(kInstructions), std::end(kInstructions),
                                     [&](const Instruction& known) { return known.opcode == opcode; });
    if (found != std::end(kInstructions)) return found->execute(*this);
    const bool is_letter = opcode > ' ' && opcode < 0x7f;
    fail(fmt::format(
        "its opcode {} does not occur in pickles of tensors",
        is_letter ? fmt::format("'{}'", static_cast<char>(opcode)) : fmt::format("0x{:02x}", opcode)));
  }

  const std::string_view bytes_;
  const std::string& file_;
  const Pickle::IsAllowed& is_allowed_;
  std::deque<PickleValue>& values_;
  std::size_t position_ = 0, opcode_begin_ = 0, copied_items_ = 0;
  bool is_stopped_ = false;
  std::vector<PickleValue*> stack_;
  std::map<std::uint64_t, PickleValue*> memo_;
};

}  // namespace

const char* name_of_kind(Kind kind) noexcept {
  constexpr std::array kNames = {
      std::pair(Kind::none, "None"),   std::pair(Kind::boolean, "bool"),      std::pair(Kind::integer, "int"),
      std::pair(Kind::real, "float"),  std::pair(Kind::big_integer, "int"),   std::pair(Kind::text, "str"),
      std::pair(Kind::bytes, "bytes"), std::pair(Kind::tuple, "tuple"),       std::pair(Kind::list, "list"),
      std::pair(Kind::dict, "dict"),   std::pair(Kind::global, "class"),      std::pair(Kind::call, "tensor"),
      std::pair(Kind::mark, "mark"),   std::pair(Kind::persistent, "storage")};
  return std::find_if(kNames.begin(), kNames.end(), [&](const auto& known) { return known.first == kind; })
      ->second;
}

Pickle::Pickle(std::string_view bytes, const std::string& file, const IsAllowed& is_allowed) {
  Reader reader(bytes, file, is_allowed, values_);
  root_ = reader.read();
  size_ = reader.position();
}

}  // namespace lockstep
