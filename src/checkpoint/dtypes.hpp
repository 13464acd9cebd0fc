#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::safetensors {

/// A dtype of the safetensors format, with Python's names for it. The one table of these names: readers and
/// writers of files look them up here. LibTorch's number of each is in tensor_dtypes.cpp, because this file
/// is independent of LibTorch.
struct Dtype {
  /// The format's: "F32".
  std::string_view name;
  /// Of one element.
  std::uint64_t bytes;
  /// "torch.float32".
  std::string_view torch;
  /// "torch.FloatStorage"; empty: PyTorch has no such class.
  std::string_view storage;

  /// Its position in the order in which files are written: by falling alignment, as the reference
  /// implementation does.
  int order() const noexcept;
};

/// The dtype of that name in safetensors; null if unknown.
const Dtype* find_dtype(std::string_view name) noexcept;

/// The dtype of a dtype's or a storage's name in Python, with "torch."; null if unknown. An untyped storage
/// has bytes (U8).
const Dtype* find_python_dtype(std::string_view name) noexcept;

}  // namespace lockstep::safetensors
