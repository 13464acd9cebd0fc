#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/safetensors.hpp"

namespace lockstep {

/// Tensors that are made or read one at a time, when they are asked for.
struct TensorSource {
  /// Their names, dtypes and shapes: the tensors themselves, or meta tensors.
  TensorMap forms;
  std::function<at::Tensor(const std::string& name)> get_tensor;
  TensorMetadata metadata = {};
};

/// Of tensors that are there.
TensorSource source_of(TensorMap tensors);

/// All of them.
TensorMap get_tensors(const TensorSource& source);

/// Their names in the order in which the format has them.
std::vector<std::string> names_in_file_order(const TensorMap& forms);

/// As save_file. Asks for each tensor once, in that order, and holds one at a time.
FileDigest save_file_from(const TensorSource& source, const std::filesystem::path& path);

/// A file whose header was read and checked, and whose tensors are not; safetensors.safe_open. Throws
/// DataError as load_file does, get_tensor for a file that became shorter or cannot be read.
TensorSource safe_open(const std::filesystem::path& path);

}  // namespace lockstep
