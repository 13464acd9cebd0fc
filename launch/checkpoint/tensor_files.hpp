#pragma once

#include <filesystem>
#include <iosfwd>
#include <map>
#include <memory>
#include <string>

#include "checkpoint/safetensors_file.hpp"

namespace lockstep::launch {

/// A tensor and its file.
struct StoredTensor {
  std::shared_ptr<const safetensors::File> file;
  const safetensors::Entry* entry = nullptr;
};

/// The tensors of `path` by name: those of a safetensors file; of a model's folder, in one file or in several
/// with an index; or of all files of a checkpoint, each name prefixed by its file's ("optimizer:
/// state.w.exp_avg"). Throws UsageError if there are none, DataError if a file is damaged.
std::map<std::string, StoredTensor> stored_tensors(const std::filesystem::path& path);

/// Merges the shards of a model into one safetensors file at `target`, which is created atomically. `source`
/// is the folder or the index in it. The result is identical to the model saved in one file. Throws
/// UsageError if there is no index, DataError if a shard is missing or damaged, Error if writing fails.
void merge_model(const std::filesystem::path& source, const std::filesystem::path& target);

/// Prints how the tensors of `one` and `other` (paths as for stored_tensors) differ, and the other files of
/// two checkpoints. Returns whether anything differs.
bool print_differences(const std::filesystem::path& one, const std::filesystem::path& other,
                       std::ostream& out);

/// Converts one element of a tensor of this dtype ("F32") to a number; null for dtypes without a single
/// number or in rare use (complex, float8).
using ElementReader = double (*)(const char* bytes);
ElementReader element_reader(const std::string& dtype);

}  // namespace lockstep::launch
