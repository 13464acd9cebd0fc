#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/core/option_spec.hpp"

namespace lockstep {

/// Reads `text` into the field, after all checks. `place` names where the text comes from ("--epochs",
/// "PET_NNODES", "JSON key 'epochs'"). Throws UsageError and leaves the field as it was.
void assign_text(const OptionSpec& spec, OptionField field, const std::string& text,
                 const std::string& place);

/// Sets a list item by item: what a JSON array means.
void assign_list(const OptionSpec& spec, OptionField field, std::vector<std::string> items,
                 const std::string& place);

/// The value as a flag would take it; nothing for an optional without a value.
std::optional<std::string> value_text(OptionField field);

/// Throws UsageError when the value that the field has now is not allowed.
void check_value(const OptionSpec& spec, OptionField field, const std::string& place);

/// "a whole number, at least 1": the type and the demands.
std::string expected_text(const OptionSpec& spec, OptionField field);

/// The demands alone, or an empty text: "at least 1".
std::string demands_text(const OptionSpec& spec);

/// The shortest text that reads back as the same number.
std::string number_text(double number);

}  // namespace lockstep
