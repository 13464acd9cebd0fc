#pragma once

#include <filesystem>
#include <string>

namespace lockstep::models {

/// What Python left in a file.
enum class ModelFileKind {
  torch_script,  ///< torch.jit.save: a program and its weights; can be trained. See ScriptModel.
  aot_inductor,  ///< torch._inductor.aoti_compile_and_package: machine code; see CompiledModel.
  exported,      ///< torch.export.save: a graph that only Python runs.
  state_dict,    ///< torch.save: a pickle, in a ZIP archive or alone.
  safetensors,   ///< Weights without a program.
  unknown,
};

/// By the file's content, whatever its name: the ZIP directory of the first four (TorchScript has
/// "constants.pkl" and "code/", AOTInductor "data/aotinductor/"), the first bytes of the others. *Local*.
/// Throws DataError for a file that cannot be read.
ModelFileKind model_file_kind(const std::filesystem::path& path);

/// Throws DataError unless the file is of this kind; the text says of which kind it is, and by which line of
/// Python the wanted one is made. *Local*.
void require_kind(const std::filesystem::path& path, ModelFileKind wanted);

}  // namespace lockstep::models
