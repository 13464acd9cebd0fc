#include "tokenizers/jinja/scope.hpp"

namespace lockstep::jinja {

void Scope::set(const std::string& name, Value value) {
  for (auto& [own, variable] : variables_) {
    if (own != name) continue;
    variable = std::move(value);
    return;
  }
  variables_.emplace_back(name, std::move(value));
}

const Value* Scope::find(const std::string& name) const {
  for (const auto* scope = this; scope != nullptr; scope = scope->outer_.get()) {
    for (const auto& [own, variable] : scope->variables_) {
      if (own == name) return &variable;
    }
  }
  return nullptr;
}

}  // namespace lockstep::jinja
