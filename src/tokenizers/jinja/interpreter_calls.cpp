#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <set>

#include "tokenizers/jinja/comparison.hpp"
#include "tokenizers/jinja/interpreter.hpp"
#include "tokenizers/jinja/methods.hpp"
#include "tokenizers/jinja/text_form.hpp"
#include "tokenizers/utf8.hpp"

namespace lockstep::jinja {
namespace {

/// The longest range of the sandbox.
constexpr std::size_t kLongestRange = 100'000;
/// What the call of a macro costs, with its scope.
constexpr std::uint64_t kCall = 16;

}  // namespace

Value Interpreter::call(const Value& function, const Arguments& arguments) {
  budget_.step();
  require_defined(function);
  switch (function.kind) {
    case Kind::function:
      return call_function(static_cast<Function>(function.integer), arguments);
    case Kind::method:
      return call_method(budget_, function.as<MethodObject>(), arguments);
    case Kind::macro:
      return call_macro(function.as<MacroObject>(), arguments);
    case Kind::loop:
      return call_loop(function.as<LoopObject>(), arguments);
    default:
      fail(fmt::format("a value of type '{}' cannot be called.", type_name(function)));
  }
}

Value Interpreter::call_function(Function function, const Arguments& arguments) {
  switch (function) {
    case Function::range:
      return make_range(arguments);
    case Function::dict:
      return dict_of(arguments);
    case Function::name_space:
      return make_namespace(arguments);
    case Function::strftime_now:
      return show_time(arguments);
    case Function::raise_exception: {
      const Bound bound("raise_exception()", arguments, {"message"}, 1);
      fail(fmt::format("the template refuses the conversation: {}", to_text(budget_, bound[0])));
    }
  }
  return Value::none();
}

Value Interpreter::make_range(const Arguments& arguments) {
  const Bound bound("range()", arguments, {"start", "stop", "step"}, 1);
  auto range = std::make_shared<RangeObject>();
  if (!arguments.named.empty()) fail("range() takes no named arguments.");
  for (const auto& value : arguments.positional) {
    require_defined(value);
    if (!value.is_integer())
      fail(fmt::format("range() needs integers, not a value of type '{}'.", type_name(value)));
  }
  if (bound.has(1)) range->start = bound[0].integer;
  range->stop = bound.has(1) ? bound[1].integer : bound[0].integer;
  if (bound.has(2)) range->step = bound[2].integer;
  if (range->step == 0) fail("range() needs a step that is not zero.");
  if (range->size() > kLongestRange) fail(fmt::format("range() gives at most {} numbers.", kLongestRange));
  return Value::of(Kind::range, std::move(range));
}

Value Interpreter::dict_of(const Arguments& arguments) {
  if (arguments.positional.size() > 1) fail("dict() takes at most one argument besides named ones.");
  std::vector<std::pair<Value, Value>> entries;
  if (!arguments.positional.empty()) {
    const auto& given = arguments.positional[0];
    if (given.is(Kind::dict)) {
      budget_.make(length_of(given) * 2 * sizeof(Value));
      entries = given.as<DictObject>().entries;
    } else {
      for (const auto& pair : elements_of(budget_, given)) {
        auto parts = elements_of(budget_, pair);
        if (parts.size() != 2) fail("dict() needs pairs of keys and values.");
        entries.emplace_back(std::move(parts[0]), std::move(parts[1]));
      }
    }
  }
  for (const auto& [name, value] : arguments.named) entries.emplace_back(Value::text(budget_, name), value);
  return make_dict(budget_, std::move(entries));
}

Value Interpreter::make_namespace(const Arguments& arguments) {
  const auto dict = dict_of(arguments);
  auto& object = keep<NamespaceObject>();
  for (const auto& [key, value] : dict.as<DictObject>().entries) {
    if (!key.is(Kind::text)) fail("namespace() needs strings as names.");
    if (text_of(key).starts_with('_'))
      fail(fmt::format("a namespace takes no attribute '{}': it begins with '_'.", text_of(key)));
    object.attributes.emplace_back(text_of(key), value);
  }
  return Value::borrowed(Kind::name_space, object);
}

Value Interpreter::show_time(const Arguments& arguments) const {
  const Bound bound("strftime_now()", arguments, {"format"}, 1);
  const auto& format = bound.text(0);
  const auto seconds = std::chrono::system_clock::to_time_t(now_);
  std::tm local{};
  localtime_r(&seconds, &local);
  // Something behind it tells an empty result from one that is too long.
  const auto marked = format + "|";
  std::array<char, 4096> shown{};
  const auto length = format.find('\0') == std::string::npos
                          ? std::strftime(shown.data(), shown.size(), marked.c_str(), &local)
                          : 0;
  if (length == 0) fail("strftime_now() needs a shorter format, without zero bytes.");
  return Value::text(budget_, tokenizer::repaired_utf8({shown.data(), length - 1}));
}

void Interpreter::bind_parameters(const MacroObject& macro, const Arguments& arguments,
                                  const ScopePtr& scope) {
  const auto& tree = *macro.tree;
  const auto name =
      tree.name.empty() ? std::string("the block of 'call'") : fmt::format("the macro '{}'", tree.name);
  auto named = arguments.named;
  const auto take_named = [&](const std::string& parameter) -> std::optional<Value> {
    const auto found =
        std::find_if(named.begin(), named.end(), [&](const auto& one) { return one.first == parameter; });
    if (found == named.end()) return std::nullopt;
    auto value = found->second;
    named.erase(found);
    return value;
  };
  bool has_caller_parameter = false;
  for (std::size_t i = 0; i < tree.parameters.size(); ++i) {
    const auto& parameter = tree.parameters[i];
    has_caller_parameter |= parameter.name == "caller";
    std::optional<Value> value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else {
      value = take_named(parameter.name);
    }
    if (!value && parameter.otherwise) value = evaluate(*parameter.otherwise, scope);
    if (!value)
      value = Value::undefined(budget_,
                               fmt::format("{} is called without its parameter '{}'.", name, parameter.name));
    scope->set(parameter.name, *value);
  }
  if (tree.uses_caller && !has_caller_parameter) {
    const auto caller = take_named("caller");
    scope->set("caller",
               caller ? *caller
                      : Value::undefined(
                            budget_, fmt::format("{} has no caller: call it by a block of 'call'.", name)));
  }
  if (tree.uses_kwargs) {
    std::vector<std::pair<Value, Value>> entries;
    for (const auto& [key, value] : named) entries.emplace_back(Value::text(budget_, key), value);
    scope->set("kwargs", make_dict(budget_, std::move(entries)));
  } else if (!named.empty()) {
    fail(fmt::format("{} takes no argument '{}'.", name, named.front().first));
  }
  const auto extra = std::min(tree.parameters.size(), arguments.positional.size());
  if (tree.uses_varargs) {
    scope->set("varargs",
               make_tuple(budget_, {arguments.positional.begin() + static_cast<std::ptrdiff_t>(extra),
                                    arguments.positional.end()}));
  } else if (arguments.positional.size() > tree.parameters.size()) {
    fail(fmt::format("{} takes at most {} arguments, not {}.", name, tree.parameters.size(),
                     arguments.positional.size()));
  }
}

Value Interpreter::call_macro(const MacroObject& macro, const Arguments& arguments) {
  budget_.step(kCall);
  const auto scope = std::make_shared<Scope>(macro.scope);
  bind_parameters(macro, arguments, scope);
  Output output(budget_);
  execute(macro.tree->body, scope, output);
  return Value::text(budget_, output.take());
}

Value Interpreter::call_loop(const LoopObject& loop, const Arguments& arguments) {
  const Bound bound("loop()", arguments, {"iterable"}, 1);
  if (loop.recursive == nullptr)
    fail("only a loop with 'recursive' can be called, and only within its body.");
  const auto& statement = *static_cast<const Statement*>(loop.recursive);
  const auto scope = *static_cast<const ScopePtr*>(loop.scope);
  Output output(budget_);
  render_loop(statement, elements_of(budget_, bound[0]), loop.depth0 + 1, scope, output);
  return Value::text(budget_, output.take());
}

}  // namespace lockstep::jinja
