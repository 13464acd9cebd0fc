#include "tokenizers/jinja/interpreter.hpp"

#include <fmt/core.h>

#include "tokenizers/jinja/comparison.hpp"
#include "tokenizers/jinja/text_form.hpp"

namespace lockstep::jinja {
namespace {

/// Of statements and expressions within each other, about where Python's own recursion ends.
constexpr int kDeepestLevel = 1200;
/// What a round of a loop costs, with its scope.
constexpr std::uint64_t kRound = 8;

}  // namespace

Interpreter::Level::Level(Interpreter& interpreter) : interpreter_(interpreter) {
  interpreter.budget_.step();
  if (++interpreter.level_ <= kDeepestLevel) return;
  --interpreter.level_;
  fail("macros or loops call themselves too deeply: is there an end to it?");
}

Interpreter::Interpreter(const Tree& tree, Budget& budget, std::chrono::system_clock::time_point now)
    : tree_(tree), budget_(budget), now_(now), root_(std::make_shared<Scope>(nullptr)), top_(budget) {
  root_->set("range", Value::of(Function::range));
  root_->set("dict", Value::of(Function::dict));
  root_->set("namespace", Value::of(Function::name_space));
  root_->set("raise_exception", Value::of(Function::raise_exception));
  root_->set("strftime_now", Value::of(Function::strftime_now));
}

std::string Interpreter::run() {
  execute(tree_.body, root_, top_);
  return top_.take();
}

Interpreter::Flow Interpreter::execute(const Body& body, const ScopePtr& scope, Output& output) {
  for (const auto& statement : body) {
    const auto flow = execute(*statement, scope, output);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::execute(const Statement& statement, const ScopePtr& scope, Output& output) {
  const Level level(*this);
  line_ = statement.line;
  switch (statement.kind) {
    case StatementKind::data:
      output.add(statement.text);
      break;
    case StatementKind::output: {
      const auto value = evaluate(*statement.value, scope);
      line_ = statement.line;
      output.add(value.is(Kind::text) ? text_of(value) : to_text(budget_, value));
      break;
    }
    case StatementKind::if_block:
      return execute_if(statement, scope, output);
    case StatementKind::for_block:
      return execute_for(statement, scope, output);
    case StatementKind::set:
      assign(*statement.target, evaluate(*statement.value, scope), scope);
      break;
    case StatementKind::set_block:
      execute_set_block(statement, scope);
      break;
    case StatementKind::with_block:
      return execute_with(statement, scope, output);
    case StatementKind::macro:
      scope->set(statement.callable.name, make_macro(statement.callable, scope));
      break;
    case StatementKind::call_block:
      execute_call_block(statement, scope, output);
      break;
    case StatementKind::filter_block: {
      const auto block = Value::text(budget_, render_inner(statement.body, scope));
      output.add(to_text(budget_, evaluate_filter(*statement.value, scope, &block)));
      break;
    }
    case StatementKind::generation:
      execute_generation(statement, scope, output);
      break;
    case StatementKind::break_loop:
      return Flow::leave_loop;
    case StatementKind::continue_loop:
      return Flow::next_round;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::execute_if(const Statement& statement, const ScopePtr& scope, Output& output) {
  for (const auto& branch : statement.branches) {
    if (!branch.condition || is_true(evaluate(*branch.condition, scope)))
      return execute(branch.body, scope, output);
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::execute_for(const Statement& statement, const ScopePtr& scope,
                                           Output& output) {
  const auto value = evaluate(*statement.value, scope);
  line_ = statement.line;
  return render_loop(statement, elements_of(budget_, value), 0, scope, output);
}

Values Interpreter::selected(const Statement& statement, Values items, const ScopePtr& scope) {
  if (!statement.condition) return items;
  Values kept;
  for (auto& item : items) {
    const auto inner = std::make_shared<Scope>(scope);
    assign(*statement.target, item, inner);
    if (is_true(evaluate(*statement.condition, inner))) kept.push_back(std::move(item));
  }
  return kept;
}

Interpreter::Flow Interpreter::render_loop(const Statement& statement, Values items, std::size_t depth,
                                           const ScopePtr& scope, Output& output) {
  auto& loop = keep<LoopObject>();
  loop.items = selected(statement, std::move(items), scope);
  loop.length = loop.items.size();
  loop.depth0 = depth;
  if (statement.recursive) {
    loop.recursive = &statement;
    loop.scope = &scope;
  }
  const auto variable = Value::borrowed(Kind::loop, loop);
  // As in jinja2, where break and continue leave a round unfinished: without a finished one, `else` follows.
  bool finished = false;
  for (std::size_t i = 0; i < loop.length; ++i) {
    budget_.step(kRound);
    loop.index0 = i;
    const auto inner = std::make_shared<Scope>(scope);
    assign(*statement.target, loop.items[i], inner);
    inner->set("loop", variable);
    const auto flow = execute(statement.body, inner, output);
    if (flow == Flow::leave_loop) break;
    finished |= flow == Flow::next;
  }
  // It may outlive the loop in a namespace, but cannot be called any more.
  loop.recursive = nullptr;
  loop.items = {};
  return finished ? Flow::next : execute(statement.otherwise, std::make_shared<Scope>(scope), output);
}

Interpreter::Flow Interpreter::execute_with(const Statement& statement, const ScopePtr& scope,
                                            Output& output) {
  const auto inner = std::make_shared<Scope>(scope);
  Values values;
  for (const auto& value : statement.values) values.push_back(evaluate(*value, scope));
  for (std::size_t i = 0; i < values.size(); ++i) assign(*statement.names[i], values[i], inner);
  return execute(statement.body, inner, output);
}

std::string Interpreter::render_inner(const Body& body, const ScopePtr& scope) {
  Output inner(budget_);
  execute(body, std::make_shared<Scope>(scope), inner);
  return inner.take();
}

void Interpreter::execute_set_block(const Statement& statement, const ScopePtr& scope) {
  auto value = Value::text(budget_, render_inner(statement.body, scope));
  if (statement.value) value = evaluate_filter(*statement.value, scope, &value);
  assign(*statement.target, value, scope);
}

void Interpreter::execute_generation(const Statement& statement, const ScopePtr& scope, Output& output) {
  // What jinja2 has yielded so far, which is not this output within a macro.
  Output inner(budget_);
  execute(statement.body, std::make_shared<Scope>(scope), inner);
  const auto begin = top_.characters();
  generated_.emplace_back(begin, begin + inner.characters());
  output.add(inner.take());
}

void Interpreter::execute_call_block(const Statement& statement, const ScopePtr& scope, Output& output) {
  const auto& call_expression = *statement.value;
  const auto function = evaluate(*call_expression.parts[0], scope);
  auto arguments = evaluate_arguments(call_expression, scope);
  arguments.named.emplace_back("caller", make_macro(statement.callable, scope));
  line_ = statement.line;
  output.add(to_text(budget_, call(function, arguments)));
}

void Interpreter::assign(const Expression& target, const Value& value, const ScopePtr& scope) {
  if (target.kind == ExpressionKind::name) return scope->set(target.text, value);
  if (target.kind == ExpressionKind::namespace_target) return assign_attribute(target, value, scope);
  line_ = target.line;
  require_defined(value);
  const auto items = elements_of(budget_, value);
  if (items.size() != target.parts.size()) {
    fail(fmt::format("{} values do not fit {} names.", items.size(), target.parts.size()));
  }
  for (std::size_t i = 0; i < items.size(); ++i) assign(*target.parts[i], items[i], scope);
}

void Interpreter::assign_attribute(const Expression& target, const Value& value, const ScopePtr& scope) {
  line_ = target.line;
  const auto* object = scope->find(target.text);
  if (object == nullptr || !object->is(Kind::name_space)) {
    fail(fmt::format("'{}' is no namespace: only the attributes of a namespace can be set.", target.text));
  }
  if (target.attribute.starts_with('_'))
    fail(fmt::format("a namespace takes no attribute '{}': it begins with '_'.", target.attribute));
  auto& attributes = object->as<NamespaceObject>().attributes;
  for (auto& [name, own] : attributes) {
    if (name != target.attribute) continue;
    own = value;
    return;
  }
  attributes.emplace_back(target.attribute, value);
}

Value Interpreter::make_macro(const MacroTree& tree, const ScopePtr& scope) {
  auto& macro = keep<MacroObject>();
  macro.tree = &tree;
  macro.scope = scope;
  return Value::borrowed(Kind::macro, macro);
}

}  // namespace lockstep::jinja
