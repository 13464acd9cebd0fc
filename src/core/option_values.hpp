#pragma once

#include <optional>
#include <string>

#include "lockstep/core/options.hpp"

namespace lockstep {

/// Reads `text` into the field, after all checks. `place` names where the text comes from ("--epochs",
/// "PET_NNODES"). Throws UsageError and leaves the field as it was.
void assign_text(const OptionSpec& spec, OptionField field, const std::string& text,
                 const std::string& place);

/// The same for a JSON value, whose type must be the field's own: "3" is no number, and 1 is not true.
void assign_json(const OptionSpec& spec, OptionField field, const nlohmann::json& value);

/// Null for an optional without a value; numbers that are not finite are texts, for JSON has no such numbers.
nlohmann::json json_of(OptionField field);

/// The value as a flag would take it; nothing for an optional without a value.
std::optional<std::string> value_text(OptionField field);

/// Throws UsageError when the value that the field has now is not allowed.
void check_value(const OptionSpec& spec, OptionField field);

/// "a whole number, at least 1": the type and the demands.
std::string expected_text(const OptionSpec& spec);

/// The demands alone, or an empty text: "at least 1". `in_help`: those that `--help` lists.
std::string demands_text(const OptionSpec& spec, bool in_help = false);

/// The word for the value in `--help`: the option's own, or one for its type.
std::string metavar_of(const OptionSpec& spec);

/// The shortest text that reads back as the same number.
std::string number_text(double number);

}  // namespace lockstep
