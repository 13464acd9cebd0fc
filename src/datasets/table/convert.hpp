#pragma once

#include <optional>
#include <string_view>

#include "lockstep/datasets/column.hpp"
#include "lockstep/datasets/features.hpp"

namespace lockstep::table {

/// The value converted to the feature's type. Throws UsageError if it does not fit.
Value convert_value(const Value& value, const Feature& feature);

/// A column's values converted to the feature's type; the column itself if it has that type already. Throws
/// UsageError, with the row and `name`.
Column converted_column(const Column& column, const Feature& feature, std::string_view name);

/// The type with text in place of dates and times, but not of durations, at any depth.
DataType with_times_as_text(const DataType& type);

// Parse text that is exactly one number, or "true" or "false" in any case. Numbers beyond the range of double
// are infinity or 0.
std::optional<std::int64_t> parse_integer(std::string_view text);
std::optional<std::uint64_t> parse_unsigned(std::string_view text);
std::optional<double> parse_number(std::string_view text);
std::optional<bool> parse_boolean(std::string_view text);

}  // namespace lockstep::table
