#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "lockstep/checkpoint/checkpoint_folder.hpp"
#include "lockstep/core/checksum.hpp"

namespace lockstep::manifest {

// The text of a manifest. Knows nothing of LibTorch.

/// The version of the format that this library writes and the only one that it reads.
constexpr int kVersion = 1;
/// A manifest that is longer is refused unread: some thousand files of a few hundred bytes each.
constexpr std::uint64_t kLongest = 16U << 20U;

struct Manifest {
  CheckpointInfo info;
  /// The files beside the manifest, by name.
  std::map<std::string, FileDigest> files;
};

/// What a manifest says about its checkpoint, and back. Throws what the JSON library throws.
nlohmann::json info_to_json(const CheckpointInfo& info);
CheckpointInfo info_from_json(const nlohmann::json& document);

/// JSON, with a checksum of its own.
std::string to_text(const Manifest& manifest);

/// Throws DataError, saying `name`, for anything but what to_text writes: no JSON, a field that is missing or
/// of the wrong kind, another version, a checksum that does not fit, a file name that leads out of the
/// folder.
Manifest from_text(std::string_view text, const std::string& name);

}  // namespace lockstep::manifest
