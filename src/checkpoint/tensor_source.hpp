#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

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

/// The tensors' names in the order of the file format.
std::vector<std::string> names_in_file_order(const TensorMap& forms);

/// As save_file. Gets each tensor once, in that order, and holds one at a time.
FileDigest save_file_from(const TensorSource& source, const std::filesystem::path& path);

/// Opens a file and checks its header, without reading tensors; safetensors.safe_open. Throws DataError as
/// load_file does; get_tensor throws it if the file was truncated or cannot be read.
TensorSource safe_open(const std::filesystem::path& path);

/// The same for a state dictionary of Python's torch.save (pytorch_model.bin, .pt, .pth): see TorchFile.
/// Tensors are contiguous; those that share storage in the file are copies.
TensorSource torch_open(const std::filesystem::path& path);

/// One of the two, whichever the file's first bytes show.
TensorSource open_tensors(const std::filesystem::path& path);

}  // namespace lockstep
