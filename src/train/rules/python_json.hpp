#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lockstep {

/// JSON as Python's `json` module writes and reads it: with NaN, Infinity and -Infinity, for which JSON has
/// no words. Keys keep their order; two blanks of indentation. Inside a document such numbers are the numbers
/// themselves. *Local*.
std::string python_json_text(const nlohmann::ordered_json& document);
/// Throws nlohmann::json::exception for a text that is none.
nlohmann::ordered_json parse_python_json(std::string_view text);

}  // namespace lockstep
