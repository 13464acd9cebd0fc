#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tokenizers/jinja/value.hpp"

namespace lockstep::jinja {

/// The variables of a block, and the block around it. A value is set in the innermost scope: a loop's body
/// does not change what is outside of it.
class Scope {
 public:
  explicit Scope(std::shared_ptr<const Scope> outer) : outer_(std::move(outer)) {}

  void set(const std::string& name, Value value);
  /// Null if there is no such variable here or outside.
  const Value* find(const std::string& name) const;

 private:
  std::shared_ptr<const Scope> outer_;
  std::vector<std::pair<std::string, Value>> variables_;
};
using ScopePtr = std::shared_ptr<Scope>;

}  // namespace lockstep::jinja
