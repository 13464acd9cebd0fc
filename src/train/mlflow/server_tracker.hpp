#pragma once

#include <memory>

#include "lockstep/train/mlflow_tracker.hpp"

namespace lockstep::mlflow {

/// The tracker itself: see make_mlflow_tracker.
std::unique_ptr<Tracker> make_server_tracker(const std::filesystem::path& folder,
                                             const MlflowOptions& options);

/// A name as MLflow takes it: letters, digits and "_-./: " of ASCII, in parts between single '/', at most 250
/// bytes; '_' for the rest. *Local*.
std::string allowed_name(const std::string& name);

}  // namespace lockstep::mlflow
