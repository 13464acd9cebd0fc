#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

namespace lockstep {

/// The JSON document of a small file, such as a model's configuration or a data set's description: at most 64 MiB.
/// Throws DataError, naming the file.
nlohmann::ordered_json read_json_document(const std::filesystem::path& path);

}  // namespace lockstep
