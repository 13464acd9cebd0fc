#pragma once

#include <filesystem>
#include <iosfwd>
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

/// Joins the files of a model that was saved in parts into one safetensors file at `target`, which appears
/// whole or not at all. `source` is the folder or the index in it. The bytes are those that the model would
/// have been saved with in one file. Throws UsageError when there is no index, DataError when a part is
/// missing or damaged, Error when writing fails.
void merge_model(const std::filesystem::path& source, const std::filesystem::path& target);

/// Prints how the tensors of `one` and `other` (what stored_tensors takes) differ, and the other files of two
/// checkpoints; true when anything does.
bool print_differences(const std::filesystem::path& one, const std::filesystem::path& other,
                       std::ostream& out);

/// Reads one element of a tensor of this dtype ("F32") as a number; null for the kinds that have no single
/// number or are too rare (complex, float8).
using ElementReader = double (*)(const char* bytes);
ElementReader element_reader(const std::string& dtype);

}  // namespace lockstep::launch
