#pragma once

#include <filesystem>

#include "lockstep/train/mlflow_tracker.hpp"

namespace lockstep::mlflow {

/// liblockstep_mlflow.so, which links libcurl, and its one entry: the core library loads it by name when a
/// tracker is made, so that programs need no libcurl otherwise.
inline constexpr const char* kPluginFile = "liblockstep_mlflow.so";
inline constexpr const char* kPluginEntry = "lockstep_mlflow_plugin";

struct Plugin {
  /// The library's version: the interface is C++, so both must be of one build.
  const char* version;
  std::unique_ptr<Tracker> (*make_tracker)(const std::filesystem::path& folder, const MlflowOptions& options);
};
using PluginEntry = const Plugin* (*)();

}  // namespace lockstep::mlflow
