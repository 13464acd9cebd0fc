#pragma once

#include <optional>
#include <string>

#include "tokenizers/jinja/arguments.hpp"
#include "tokenizers/jinja/value.hpp"

namespace lockstep::jinja {

/// The variable `loop` of a loop that runs.
struct LoopObject final : Object {
  Values items;
  std::size_t length = 0;
  std::size_t index0 = 0;
  std::size_t depth0 = 0;
  /// The statement of a recursive loop, which a call renders again.
  const void* recursive = nullptr;
  const void* scope = nullptr;
  mutable std::optional<Values> last_changed;
};

/// loop.index, loop.first and the like; nothing for a name that a loop has not.
std::optional<Value> loop_attribute(Budget& budget, const Value& loop, const std::string& name);
/// loop.cycle() and loop.changed().
Value call_loop_method(Budget& budget, const Value& loop, const std::string& name,
                       const Arguments& arguments);

}  // namespace lockstep::jinja
