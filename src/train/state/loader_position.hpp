#pragma once

#include <nlohmann/json_fwd.hpp>

#include "lockstep/data/data_loader.hpp"

namespace lockstep::train {

/// Converts a loader's position to a checkpoint's JSON and back; reads the older format, too. Throws
/// exceptions of nlohmann::json for a document of another form.
nlohmann::json to_json(const DataLoaderState& state);
DataLoaderState loader_state_from(const nlohmann::json& document);

}  // namespace lockstep::train
