#pragma once

#include <filesystem>
#include <string>

namespace lockstep::models {

/// Kinds of model files that Python writes.
enum class ModelFileKind {
  torch_script,  ///< torch.jit.save: a program and its weights; can be trained. See ScriptModel.
  aot_inductor,  ///< torch._inductor.aoti_compile_and_package: machine code; see CompiledModel.
  exported,      ///< torch.export.save: a graph that only Python can run.
  state_dict,    ///< torch.save: a pickle, in a ZIP archive or alone.
  safetensors,   ///< Weights without a program.
  unknown,
};

/// Detects the kind by the file's content, whatever its name: the first four by the ZIP directory
/// (TorchScript has "constants.pkl" and "code/", AOTInductor "data/aotinductor/"), the others by the first
/// bytes. *Local*. Throws DataError if the file cannot be read.
ModelFileKind model_file_kind(const std::filesystem::path& path);

/// Throws DataError unless the file is of this kind; the text names its kind, and the Python call that
/// creates the wanted one. *Local*.
void require_kind(const std::filesystem::path& path, ModelFileKind wanted);

}  // namespace lockstep::models
