#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::models {

/// The names of the files in a ZIP archive, from its central directory (PKWARE's APPNOTE 4.3, with ZIP64).
/// Empty if the file is not a ZIP archive or its directory is inconsistent. Throws DataError if the file
/// cannot be read.
std::vector<std::string> zip_names(const std::filesystem::path& path);

}  // namespace lockstep::models
