#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizers/jinja/arguments.hpp"
#include "tokenizers/jinja/loop.hpp"
#include "tokenizers/jinja/output.hpp"
#include "tokenizers/jinja/scope.hpp"
#include "tokenizers/jinja/tree.hpp"

namespace lockstep::jinja {

/// A macro, or the body of a call block. It sees the variables of where it stands.
struct MacroObject final : Object {
  const MacroTree* tree = nullptr;
  ScopePtr scope;
};

/// Renders a template once.
///
/// Scopes follow jinja2's compiler: bodies of loops, macros, set, call, filter and generation blocks have one
/// of their own, those of if blocks have not. Namespaces, loops and macros live as long as the interpreter,
/// and values only refer to them.
class Interpreter {
 public:
  /// All must outlive this. `now` is what strftime_now() shows, in local time.
  Interpreter(const Tree& tree, Budget& budget, std::chrono::system_clock::time_point now);

  void set(const std::string& name, Value value) { root_->set(name, std::move(value)); }
  /// Throws Failure.
  std::string run();
  /// The line that was at work last.
  int line() const { return line_; }
  /// What the generation blocks wrote, from a character of the whole text to before another.
  const std::vector<std::pair<std::size_t, std::size_t>>& generated() const { return generated_; }

 private:
  enum class Flow { next, leave_loop, next_round };
  /// One more level of the stack, which macros that call themselves would exhaust.
  class Level {
   public:
    explicit Level(Interpreter& interpreter);
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    ~Level() { --interpreter_.level_; }

   private:
    Interpreter& interpreter_;
  };

  Flow execute(const Body& body, const ScopePtr& scope, Output& output);
  Flow execute(const Statement& statement, const ScopePtr& scope, Output& output);
  Flow execute_if(const Statement& statement, const ScopePtr& scope, Output& output);
  Flow execute_for(const Statement& statement, const ScopePtr& scope, Output& output);
  Flow execute_with(const Statement& statement, const ScopePtr& scope, Output& output);
  Flow render_loop(const Statement& statement, Values items, std::size_t depth, const ScopePtr& scope,
                   Output& output);
  Values selected(const Statement& statement, Values items, const ScopePtr& scope);
  void execute_set_block(const Statement& statement, const ScopePtr& scope);
  void execute_generation(const Statement& statement, const ScopePtr& scope, Output& output);
  void execute_call_block(const Statement& statement, const ScopePtr& scope, Output& output);
  std::string render_inner(const Body& body, const ScopePtr& scope);
  void assign(const Expression& target, const Value& value, const ScopePtr& scope);
  void assign_attribute(const Expression& target, const Value& value, const ScopePtr& scope);
  Value make_macro(const MacroTree& tree, const ScopePtr& scope);

  Value evaluate(const Expression& expression, const ScopePtr& scope);
  Value evaluate_or_none(const ExpressionPtr& expression, const ScopePtr& scope);
  Value evaluate_name(const Expression& expression, const ScopePtr& scope);
  Values evaluate_parts(const Expression& expression, const ScopePtr& scope);
  Value evaluate_dict(const Expression& expression, const ScopePtr& scope);
  Value evaluate_slice(const Expression& expression, const ScopePtr& scope);
  Value evaluate_comparison(const Expression& expression, const ScopePtr& scope);
  Value evaluate_conditional(const Expression& expression, const ScopePtr& scope);
  Value evaluate_call(const Expression& expression, const ScopePtr& scope);
  Value evaluate_test(const Expression& expression, const ScopePtr& scope);
  /// A filter, on `block` if it has no value of its own.
  Value evaluate_filter(const Expression& expression, const ScopePtr& scope, const Value* block = nullptr);
  Arguments evaluate_arguments(const Expression& expression, const ScopePtr& scope);

  Value call(const Value& function, const Arguments& arguments);
  Value call_function(Function function, const Arguments& arguments);
  Value call_macro(const MacroObject& macro, const Arguments& arguments);
  void bind_parameters(const MacroObject& macro, const Arguments& arguments, const ScopePtr& scope);
  Value call_loop(const LoopObject& loop, const Arguments& arguments);
  Value make_namespace(const Arguments& arguments);
  Value dict_of(const Arguments& arguments);
  Value make_range(const Arguments& arguments);
  Value show_time(const Arguments& arguments) const;

  template <class T>
  T& keep() {
    auto object = std::make_unique<T>();
    budget_.make(sizeof(T));
    auto& kept = *object;
    kept_.push_back(std::move(object));
    return kept;
  }

  const Tree& tree_;
  Budget& budget_;
  std::chrono::system_clock::time_point now_;
  std::vector<std::unique_ptr<Object>> kept_;
  ScopePtr root_;
  Output top_;
  std::vector<std::pair<std::size_t, std::size_t>> generated_;
  int line_ = 1;
  int level_ = 0;
};

}  // namespace lockstep::jinja
