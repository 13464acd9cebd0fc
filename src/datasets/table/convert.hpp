#pragma once

#include <optional>
#include <string_view>

#include "lockstep/datasets/column.hpp"
#include "lockstep/datasets/features.hpp"

namespace lockstep::table {

/// The value as the feature's type has it. Throws UsageError where it has no place there.
Value converted(const Value& value, const Feature& feature);

/// A column's values as the feature's type has them; the column itself where it has that type already. Throws
/// UsageError, naming the row and `name`.
Column converted_column(const Column& column, const Feature& feature, std::string_view name);

// Text that is one number, or "true" or "false" in any case, and nothing else.
std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<double> parse_number(std::string_view text);
std::optional<bool> parse_boolean(std::string_view text);

}  // namespace lockstep::table
