#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

namespace lockstep {

/// JSON from a file that may come from anywhere. Stops at the depth at which the parser's tree would grow out
/// of proportion to the text. Throws std::exception for what is no JSON or is deeper.
inline nlohmann::json parse_shallow_json(std::string_view text, int deepest) {
  const auto shallow = [deepest](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (depth > deepest) throw std::invalid_argument("it is nested too deeply");
    return true;
  };
  return nlohmann::json::parse(text, shallow);
}

}  // namespace lockstep
