#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.hpp"
#include "core/checksum.hpp"

namespace lockstep {

/// The tensors' names in the order of the file format.
std::vector<std::string> names_in_file_order(const TensorMap& forms);

/// As save_file. Gets each tensor once, in that order, and holds one at a time.
FileDigest save_file_from(const TensorSource& source, const std::filesystem::path& path);

/// Opens a file and checks its header, without reading tensors; safetensors.safe_open. Throws DataError as
/// load_file does; get_tensor throws it if the file was truncated or cannot be read.
TensorSource safe_open(const std::filesystem::path& path);

}  // namespace lockstep
