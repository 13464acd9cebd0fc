#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep {

/// File name of a saved model inside its folder: Hugging Face's.
constexpr const char* kModelFileName = "model.safetensors";
/// The same of models that were saved as pickles by torch.save: these are only read.
constexpr const char* kTorchFileName = "pytorch_model.bin";

/// Default maximum size of a model file in bytes: transformers' 50 GB.
constexpr std::uint64_t kMaxShardBytes = 50'000'000'000;

/// Writes tensors by name to `folder`/model.safetensors; a shared tensor is written once, under its first
/// name. Creates the folder if needed. The file appears complete or not at all. *Local*.
///
/// A model of more than `max_shard_bytes` is written as several files, each tensor in one of them, by Hugging
/// Face's rules and names: model-00001-of-00002.safetensors and so on, and model.safetensors.index.json. The
/// index is written last, and an older one is removed first: if writing fails, there is no model rather than
/// a mixture. Files that an earlier call wrote for another number of shards are removed.
void write_model(const std::filesystem::path& folder, const std::vector<NamedTensor>& tensors,
                 std::uint64_t max_shard_bytes = kMaxShardBytes);
/// The same to a file of any name in an existing folder. Returns the file's size and checksum.
FileDigest write_model_file(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);

/// Copies the values of `path` (the file, or the folder that contains it, in one file or several: as
/// safetensors, else as pickles of torch.save, of which nothing is executed) into `tensors`, whose names,
/// shapes and dtypes must be exactly those of the file; LayerNorm.gamma and LayerNorm.beta of old files stand
/// for .weight and .bias. A shared tensor may be in the file under any of its names. *Local*. Throws
/// DataError, which lists missing and unexpected tensors and different shapes; then nothing has been copied.
void read_model(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);

}  // namespace lockstep
