#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parallel/module_tensors.hpp"

namespace lockstep::models {

/// The file with a model's configuration, beside its weights: Hugging Face's name.
constexpr const char* kConfigFileName = "config.json";

/// How the names in a weights file correspond to a model's names.
struct PretrainedNames {
  /// Prefix of the body's names in a model with a head ("bert.", "transformer."): either the file or the
  /// model may lack it.
  std::string base_prefix = {};
  /// Prefixes of the model's names that a file may lack: a new head keeps its initial values.
  std::vector<std::string> new_heads = {};
  /// Prefixes of names that the file may lack or have with another shape: the model's new head keeps its
  /// initial values and replaces the file's head.
  std::vector<std::string> replaced_heads = {};
  /// Prefixes of the file's names that a model may lack: heads of other tasks.
  std::vector<std::string> other_heads = {};
  /// Suffixes of names in the file that are not weights: masks and positions that old versions wrote.
  std::vector<std::string> constants = {};
  /// For messages: the fields of config.json that determine the sizes of tensors whose names, without
  /// base_prefix, begin and end so, one field per dimension. The first that fits counts.
  struct Sizes {
    std::string begin, end;
    std::vector<std::string> fields;
  };
  std::vector<Sizes> sizes = {};
  /// The same for the number of layers: the beginning of their names, and the field.
  std::vector<std::pair<std::string, std::string>> layers = {};
};

/// An old name of tensors in a file, and that in the model: "LayerNorm.gamma" for "LayerNorm.weight".
struct PretrainedRename {
  std::string in_file, in_model;
  bool operator==(const PretrainedRename&) const = default;
};

/// The names without a counterpart.
struct PretrainedReport {
  /// The model's tensors that are missing in the files and that PretrainedNames allows to be new.
  std::vector<std::string> initialized;
  /// The files' tensors that the model does not use.
  std::vector<std::string> unused;
  /// The old names that the files have.
  std::vector<PretrainedRename> renames;
};

/// Copies a pretrained model's values into `tensors` (a module's parameters and buffers; a shared one may
/// have any of its names). `path` is a safetensors file, or a folder with model.safetensors or, if sharded,
/// model.safetensors.index.json, as written by Hugging Face's save_pretrained and Accelerator::save_model. A
/// folder without these, or a file, may also be a pickle of Python's torch.save: pytorch_model.bin, or its
/// parts with pytorch_model.bin.index.json. Nothing in it is executed. Floating-point values are converted to
/// the model's dtype. The names LayerNorm.gamma and LayerNorm.beta of old files stand for .weight and .bias,
/// as in transformers. *Local*. Throws DataError, which lists missing and unknown tensors and those of
/// another shape or kind; then nothing has been copied.
PretrainedReport load_pretrained(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                                 const PretrainedNames& names = {});

/// Writes `folder`/model.safetensors (each shared tensor once, under its first name) and `folder`/config.json
/// with this text, for load_pretrained and Hugging Face's from_pretrained. Each file appears complete or not
/// at all; the configuration is written last. *Local*. Throws Error if writing fails.
void save_pretrained(const std::filesystem::path& folder, const std::vector<NamedTensor>& tensors,
                     const std::string& config);

}  // namespace lockstep::models
