#pragma once

#include <filesystem>

namespace lockstep::launch {

/// Joins the files of a model that was saved in parts into one safetensors file at `target`, which appears
/// whole or not at all. `source` is the folder or the index in it. The bytes are those that the model would
/// have been saved with in one file. Throws UsageError when there is no index, DataError when a part is
/// missing or damaged, Error when writing fails.
void merge_model(const std::filesystem::path& source, const std::filesystem::path& target);

}  // namespace lockstep::launch
