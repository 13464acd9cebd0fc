#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

namespace lockstep {

/// Parses JSON from an untrusted file. Stops at the depth `deepest`, because the parser's tree could
/// otherwise become much larger than the text. Throws std::exception if the text is invalid or nested more
/// deeply.
inline nlohmann::json parse_shallow_json(std::string_view text, int deepest) {
  const auto shallow = [deepest](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (depth > deepest) throw std::invalid_argument("it is nested too deeply");
    return true;
  };
  return nlohmann::json::parse(text, shallow);
}

}  // namespace lockstep
