#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace lockstep::launch {

/// `lockstep trace DIR [--chrome FILE]`, and `lockstep trace --request DIR`. Returns the exit status. Throws
/// UsageError, DataError or Error.
int trace_command(const std::vector<std::string>& words, std::ostream& out);

}  // namespace lockstep::launch
