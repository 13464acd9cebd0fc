#pragma once

#include <string>
#include <string_view>

#include "core/utf8_check.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::table {

/// Throws UsageError for a name that is not UTF-8: neither Arrow's schemas nor JSON hold it. `what` says what
/// it names ("the column").
inline void check_name(std::string_view name, const std::string& what) {
  if (first_not_utf8(name) == std::string_view::npos) return;
  throw UsageError(what + " '" + utf8_text(name) + "' has a name that is not UTF-8 text. Rename it.");
}

}  // namespace lockstep::table
