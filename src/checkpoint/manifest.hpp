#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "checkpoint/checkpoint_folder.hpp"
#include "core/checksum.hpp"

namespace lockstep::manifest {

// The text of a manifest. Independent of LibTorch.

/// The format version that this library writes, and the only one that it reads.
constexpr int kVersion = 1;
/// Maximum size of a manifest that is read: enough for tens of thousands of files.
constexpr std::uint64_t kLongest = 16U << 20U;

struct Manifest {
  CheckpointInfo info;
  /// The files beside the manifest, by name.
  std::map<std::string, FileDigest> files;
};

/// Converts the description of a checkpoint to JSON and back. Throws the exceptions of the JSON library.
nlohmann::json info_to_json(const CheckpointInfo& info);
CheckpointInfo info_from_json(const nlohmann::json& document);

/// JSON that includes its own checksum.
std::string to_text(const Manifest& manifest);

/// Throws DataError, with `name` in its text, for anything that to_text does not write: invalid JSON, a field
/// that is missing or of the wrong type, another version, a wrong checksum, a file name outside the folder.
Manifest from_text(std::string_view text, const std::string& name);

}  // namespace lockstep::manifest
