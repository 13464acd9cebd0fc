#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep {

/// The file that a saved model is in, inside its folder: Hugging Face's name.
constexpr const char* kModelFileName = "model.safetensors";

/// The largest file that a model is written into, in bytes: transformers' 50 GB.
constexpr std::uint64_t kMaxShardBytes = 50'000'000'000;

/// Writes tensors under their names, each shared tensor once under its first name, into
/// `folder`/model.safetensors. Makes the folder where needed. The file appears whole or not at all. *Local*.
///
/// A model of more than `max_shard_bytes` goes into several files, each tensor whole, by Hugging Face's rules
/// and names: model-00001-of-00002.safetensors and so on, and model.safetensors.index.json. The index is
/// written last, and an older one is removed first: when writing fails in between, there is no model rather
/// than a mixture. What an earlier call left in another number of files goes away.
void write_model(const std::filesystem::path& folder, const std::vector<NamedTensor>& tensors,
                 std::uint64_t max_shard_bytes = kMaxShardBytes);
/// Likewise into a file of any name, in a folder that is there. Returns the file's size and checksum.
FileDigest write_model_file(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);

/// Copies the values of `path` (the file, or the folder it is in, in one file or in several) into `tensors`,
/// whose names, shapes and dtypes must be exactly those of the file; a shared tensor may be in the file under
/// any one of its names. *Local*. Throws DataError listing what is missing, unexpected or of another shape;
/// then nothing has been copied.
void read_model(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);

}  // namespace lockstep
