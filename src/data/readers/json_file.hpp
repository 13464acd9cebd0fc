#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::readers {

/// The JSON document of a small file that describes a data set: at most 64 MiB. Throws DataError, naming it.
nlohmann::ordered_json read_json_document(const std::filesystem::path& path);

/// The whole text of a file. Throws DataError, naming it.
std::string read_text(const std::filesystem::path& path, std::uint64_t most);

}  // namespace lockstep::readers
