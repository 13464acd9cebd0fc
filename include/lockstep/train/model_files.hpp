#pragma once

#include <filesystem>
#include <vector>

#include "lockstep/checkpoint/safetensors.hpp"
#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep {

/// The file that a saved model is in, inside its folder: Hugging Face's name.
constexpr const char* kModelFileName = "model.safetensors";

/// Writes tensors under their names, each shared tensor once under its first name, into
/// `folder`/model.safetensors. Makes the folder where needed. The file appears whole or not at all. *Local*.
void write_model(const std::filesystem::path& folder, const std::vector<NamedTensor>& tensors);
/// Likewise into a file of any name, in a folder that is there.
void write_model_file(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);

/// Copies the values of `path` (the file, or the folder it is in) into `tensors`, whose names, shapes and
/// dtypes must be exactly those of the file; a shared tensor may be in the file under any one of its names.
/// *Local*. Throws DataError listing what is missing, unexpected or of another shape; then nothing has been
/// copied.
void read_model(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);

/// The two halves of read_model: the content of `path`, compared with `tensors`; and the copying of it.
SafeTensors load_for_model(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);
void copy_into(const SafeTensors& content, const std::vector<NamedTensor>& tensors);

}  // namespace lockstep
