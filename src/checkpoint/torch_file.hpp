#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/pickle.hpp"
#include "core/input_file.hpp"

namespace lockstep {

/// A tensor of a file of torch.save: a view of a range of the file.
struct TorchTensor {
  /// Its name in safetensors ("F32"), and the bytes of an element.
  std::string dtype;
  std::uint64_t element_bytes = 0;
  std::vector<std::int64_t> sizes, strides;
  /// Where in the file the elements from the first to the last one of the view are. Others may lie between.
  std::uint64_t begin = 0;
  std::uint64_t elements = 0;
};

/// A state dictionary that Python's torch.save wrote (pytorch_model.bin, .pt, .pth), in the format of an
/// archive (since PyTorch 1.6) or the one before it. Nothing in it is executed: see Pickle. Only the names
/// and forms are read here. *Local*; one thread at a time.
class TorchFile {
 public:
  /// Throws DataError, with the file and the tensor, if the file cannot be read, is not of that kind,
  /// contains anything else than tensors by name, or a tensor that is not within its storage or the file.
  explicit TorchFile(const std::filesystem::path& path);

  const std::map<std::string, TorchTensor>& tensors() const noexcept { return tensors_; }
  /// Reads all elements of a tensor's range. Throws DataError if the file was truncated or cannot be read.
  void read(const TorchTensor& tensor, void* data) const;

 private:
  std::filesystem::path path_;
  InputFile file_;
  std::map<std::string, TorchTensor> tensors_;
};

/// Whether a file begins like one of torch.save: as a zip archive, or as a pickle. Safetensors never do.
bool is_torch_file(const std::filesystem::path& path);

}  // namespace lockstep
