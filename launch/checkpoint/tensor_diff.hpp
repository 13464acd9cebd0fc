#pragma once

#include <filesystem>
#include <iosfwd>

namespace lockstep::launch {

/// Prints how the tensors of `one` and `other` differ (see stored_tensors for what these may be), and the
/// other files of two checkpoints; true when anything does.
bool print_differences(const std::filesystem::path& one, const std::filesystem::path& other,
                       std::ostream& out);

}  // namespace lockstep::launch
