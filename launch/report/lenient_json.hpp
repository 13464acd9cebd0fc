#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::launch {

/// Parses JSON as Python writes it: with NaN, Infinity and -Infinity, which become the strings "NaN" and so
/// on. `what` names the text in errors. *Local*. Throws DataError if it is not UTF-8 or not JSON, is nested
/// too deeply, or has a name twice in an object.
nlohmann::json parse_python_text(std::string_view text, const std::string& what);

/// The same for a file of at most 256 MiB. *Local*. Throws DataError, naming the file.
nlohmann::json read_python_json(const std::filesystem::path& path);

/// The number of a JSON value, also of the strings "NaN", "nan", "inf", "-Infinity" ...; nothing for other
/// values. *Local*.
std::optional<double> number_in(const nlohmann::json& value);

/// The number of an object's member; nothing if there is none or `value` is no object. *Local*.
std::optional<double> number_at(const nlohmann::json& value, const char* name);

/// A value for a table: a string without quotes, true, 0.5, null as "none", others as JSON. *Local*.
std::string plain_text(const nlohmann::json& value);

}  // namespace lockstep::launch
