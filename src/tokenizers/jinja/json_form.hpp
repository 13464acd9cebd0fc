#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "tokenizers/jinja/value.hpp"

namespace lockstep::jinja {

/// How json.dumps() writes.
struct JsonStyle {
  bool ensure_ascii = false;
  /// What a level is indented by; without it, all is in one line.
  std::optional<std::string> indent = std::nullopt;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};

/// Python's json.dumps(). Throws Failure for a value that JSON has not.
std::string to_json(Budget& budget, const Value& value, const JsonStyle& style);

/// The value of a JSON document. Throws Failure for text that is not UTF-8, an integer beyond 64 bits, and
/// lists nested too deeply.
Value from_json(Budget& budget, const nlohmann::ordered_json& json);

}  // namespace lockstep::jinja
