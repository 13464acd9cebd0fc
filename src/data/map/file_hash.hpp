#pragma once

#include <filesystem>
#include <string>

namespace lockstep {

/// The SHA-256 of a file's bytes, or of the names and bytes of all files below a folder, in hexadecimal.
/// Throws DataError, naming the file, when it cannot be read. *Local*.
std::string sha256_of_file(const std::filesystem::path& path);

}  // namespace lockstep
