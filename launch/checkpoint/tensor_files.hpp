#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "checkpoint/safetensors_file.hpp"

namespace lockstep::launch {

/// A tensor and the file that it is in.
struct StoredTensor {
  std::shared_ptr<const safetensors::File> file;
  const safetensors::Entry* entry = nullptr;
};

/// The tensors of `path` by name: those of a safetensors file; of a model's folder, in one file or in several
/// with an index; or of all files of a checkpoint, each name after its file's ("optimizer: state.w.exp_avg").
/// Throws UsageError when there is nothing of that kind, DataError for files that are damaged.
std::map<std::string, StoredTensor> stored_tensors(const std::filesystem::path& path);

/// The same for a folder with an index, whose file is given.
std::map<std::string, StoredTensor> indexed_tensors(const std::filesystem::path& index);

}  // namespace lockstep::launch
