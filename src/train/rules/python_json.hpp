#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lockstep {

/// JSON as Python's `json` module writes and reads it: with NaN, Infinity and -Infinity, which JSON lacks. In
/// a document these are plain numbers. Keys keep their order; the indentation is two spaces. *Local*.
std::string python_json_text(const nlohmann::ordered_json& document);
/// Throws nlohmann::json::exception if the text is not valid.
nlohmann::ordered_json parse_python_json(std::string_view text);

}  // namespace lockstep
