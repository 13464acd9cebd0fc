#pragma once

#include <filesystem>
#include <vector>

#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep {

/// The file that a saved model is in, inside its folder: Hugging Face's name.
constexpr const char* kModelFileName = "model.safetensors";

/// Writes tensors under their names, each shared tensor once under its first name, into
/// `folder`/model.safetensors. Makes the folder where needed. The file appears whole or not at all. *Local*.
void write_model(const std::filesystem::path& folder, const std::vector<NamedTensor>& tensors);

/// Copies the values of `path` (the file, or the folder it is in) into `tensors`, whose names, shapes and
/// dtypes must be exactly those of the file; a shared tensor may be in the file under any one of its names.
/// *Local*. Throws DataError listing what is missing, unexpected or of another shape; then nothing has been
/// copied.
void read_model(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);

}  // namespace lockstep
