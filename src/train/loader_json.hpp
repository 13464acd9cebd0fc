#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "lockstep/core/checksum.hpp"
#include "lockstep/data/data_loader.hpp"

namespace lockstep::train {

nlohmann::json to_json(const DataLoaderState& state);
/// Throws what nlohmann::json throws for a document of another form.
DataLoaderState loader_state_from(const nlohmann::json& document);

/// A JSON document in a file of its own, written as a whole.
FileDigest write_json(const std::filesystem::path& path, const nlohmann::json& document);
/// Throws DataError for a file that cannot be read or is no JSON.
nlohmann::json read_json(const std::filesystem::path& path);

}  // namespace lockstep::train
