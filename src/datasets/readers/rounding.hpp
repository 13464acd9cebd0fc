#pragma once

#include <string>
#include <string_view>

namespace lockstep::readers {

/// Whether a float64 is exactly this integer, which may have any number of digits.
bool is_exact(std::string_view integer, double number);

/// Warns on standard error that an integer was rounded in a column of floating numbers; once for each column
/// of a file in the process. `location` is the row's, with the file ("line 3 of 'a.jsonl'"). Any thread.
void warn_rounded(const std::string& file, const std::string& location, const std::string& column,
                  std::string_view integer, double number);

}  // namespace lockstep::readers
