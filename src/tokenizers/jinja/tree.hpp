#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizers/jinja/value.hpp"

namespace lockstep::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

enum class ExpressionKind : std::uint8_t {
  constant,
  /// `text` is the name.
  name,
  /// `text` is the namespace's name, and `attribute` what is set.
  namespace_target,
  list,
  tuple,
  /// Keys and values in turn.
  dict,
  /// The object; `text` is the attribute.
  attribute,
  /// The object and the subscript.
  item,
  /// The object, start, stop and step, which may be null.
  slice,
  /// The function, or null for one that a block applies.
  call,
  /// The value, or null; `text` is the filter's or test's name.
  filter,
  test,
  logical_not,
  logical_and,
  logical_or,
  negative,
  positive,
  /// `text` is the sign.
  arithmetic,
  concatenation,
  /// The first operand, and the others with the signs in `signs`.
  comparison,
  /// The test, the value, and the other one, which may be null.
  conditional,
};

enum class ArgumentKind : std::uint8_t { positional, named, unpacked_list, unpacked_dict };

struct CallArgument {
  ArgumentKind kind = ArgumentKind::positional;
  std::string name = {};
  ExpressionPtr value;
};

struct Expression {
  ExpressionKind kind = ExpressionKind::constant;
  int line = 0;
  /// The longest way to a leaf: what evaluating it takes of the stack.
  int depth = 1;
  std::string text = {};
  std::string attribute = {};
  Value constant = {};
  std::vector<ExpressionPtr> parts = {};
  std::vector<std::string> signs = {};
  std::vector<CallArgument> arguments = {};
};

struct Statement;
using StatementPtr = std::unique_ptr<const Statement>;
using Body = std::vector<StatementPtr>;

enum class StatementKind : std::uint8_t {
  /// `text`.
  data,
  /// The text of `value`.
  output,
  if_block,
  /// `target`, `value` and perhaps `condition`; `otherwise` is the body of else.
  for_block,
  /// `target` and `value`.
  set,
  /// `target`, perhaps a filter in `value`, and the body.
  set_block,
  /// `names` and `values`.
  with_block,
  macro,
  /// A macro in `callable`, and a call in `value`.
  call_block,
  /// A filter in `value`.
  filter_block,
  generation,
  break_loop,
  continue_loop,
};

/// A condition with its body; `else` has none.
struct Branch {
  ExpressionPtr condition;
  Body body;
};

struct Parameter {
  std::string name;
  /// Null if there is none.
  ExpressionPtr otherwise;
};

struct MacroTree {
  std::string name = {};
  int line = 0;
  std::vector<Parameter> parameters = {};
  Body body = {};
  /// Which of the special names the body uses.
  bool uses_caller = false;
  bool uses_kwargs = false;
  bool uses_varargs = false;
};

struct Statement {
  StatementKind kind = StatementKind::data;
  int line = 0;
  std::string text = {};
  ExpressionPtr target = nullptr;
  ExpressionPtr value = nullptr;
  ExpressionPtr condition = nullptr;
  bool recursive = false;
  Body body = {};
  Body otherwise = {};
  std::vector<Branch> branches = {};
  std::vector<ExpressionPtr> names = {};
  std::vector<ExpressionPtr> values = {};
  MacroTree callable = {};
};

/// A template that was read.
struct Tree {
  Body body;
  /// Whether it marks what the assistant generated.
  bool has_generation = false;
};

}  // namespace lockstep::jinja
