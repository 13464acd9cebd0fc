#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "lockstep/checkpoint/safetensors.hpp"

namespace lockstep {

/// Tensors that are created or read one at a time, on request.
struct TensorSource {
  /// Their names, dtypes and shapes: the tensors themselves, or meta tensors.
  TensorMap forms;
  std::function<at::Tensor(const std::string& name)> get_tensor;
  TensorMetadata metadata = {};
};

/// A source of existing tensors.
TensorSource source_of(TensorMap tensors);

/// Gets all tensors of a source.
TensorMap get_tensors(const TensorSource& source);

/// Opens a safetensors file or one of Python's torch.save, whichever its first bytes show: safe_open or
/// torch_open.
TensorSource open_tensors(const std::filesystem::path& path);

}  // namespace lockstep
