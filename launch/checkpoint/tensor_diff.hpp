#pragma once

#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>

namespace lockstep::launch {

/// Prints how the tensors of `one` and `other` differ (see stored_tensors for what these may be), and the
/// other files of two checkpoints; true when anything does.
bool print_differences(const std::filesystem::path& one, const std::filesystem::path& other,
                       std::ostream& out);

/// Reads one element of a tensor of this dtype ("F32") as a number; nothing for the kinds that have no single
/// number or are too rare (complex, float8).
using ElementReader = double (*)(const char* bytes);
std::optional<ElementReader> element_reader(const std::string& dtype);

}  // namespace lockstep::launch
