#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep::models {

/// The file that describes a model, beside its weights: Hugging Face's name.
constexpr const char* kConfigFileName = "config.json";

/// How the names in a file of weights relate to a model's.
struct PretrainedNames {
  /// What the names of the body begin with in a model with a head ("bert.", "transformer."): a file may have
  /// it where the model has not, and the other way round.
  std::string base_prefix = {};
  /// Beginnings of the model's names that a file may lack: a new head keeps the values that it was made with.
  std::vector<std::string> new_heads = {};
  /// Beginnings of names that the file may lack or have in another shape: a head of other classes is replaced
  /// by the new one of the model, which keeps its values.
  std::vector<std::string> replaced_heads = {};
  /// Beginnings of the file's names that a model may lack: the heads of other tasks.
  std::vector<std::string> other_heads = {};
  /// Ends of names in the file that hold no weights: masks and positions that old versions wrote.
  std::vector<std::string> constants = {};
};

/// What happened to names that have no counterpart.
struct PretrainedReport {
  /// The model's tensors that the files lack and that PretrainedNames lets be new.
  std::vector<std::string> initialized;
  /// The files' tensors that the model has no use for.
  std::vector<std::string> unused;
};

/// Copies a pretrained model's values into `tensors` (a module's parameters and buffers; a shared one may be
/// under any of its names). `path` is a safetensors file, or a folder with model.safetensors or, for one in
/// several files, model.safetensors.index.json: as Hugging Face's save_pretrained and Accelerator::save_model
/// write them. Floating-point values are converted to the model's dtype. *Local*. Throws DataError, listing
/// what is missing, not known, or of another shape or kind; then nothing has been copied.
PretrainedReport load_pretrained(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                                 const PretrainedNames& names = {});

/// Writes `folder`/model.safetensors (each shared tensor once, under its first name) and `folder`/config.json
/// with this text: what load_pretrained and Hugging Face's from_pretrained read. Each file appears whole or
/// not at all; the configuration comes last. *Local*. Throws Error when writing fails.
void save_pretrained(const std::filesystem::path& folder, const std::vector<NamedTensor>& tensors,
                     const std::string& config);

}  // namespace lockstep::models
