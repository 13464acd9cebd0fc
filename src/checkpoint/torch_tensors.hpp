#pragma once

#include <filesystem>

#include "checkpoint/tensor_source.hpp"

namespace lockstep {

/// Opens a state dictionary of Python's torch.save (pytorch_model.bin, .pt, .pth) without reading tensors:
/// see TorchFile. Tensors are contiguous; those that share storage in the file are copies. Throws DataError;
/// get_tensor throws it if the file was truncated or cannot be read.
TensorSource torch_open(const std::filesystem::path& path);

}  // namespace lockstep
