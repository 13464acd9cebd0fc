#pragma once

#include <filesystem>
#include <string>

#include "lockstep/checkpoint/safetensors.hpp"

namespace lockstep {

/// The file that a path means: a folder's model, in one file or by its index.
std::filesystem::path model_file_of(const std::filesystem::path& path);

/// The tensors of such a file, for an index those of all its files. Throws DataError, also where a tensor is
/// in two files.
SafeTensors load_model_file(const std::filesystem::path& file);

/// A tensor's dtype and shape, for messages.
std::string tensor_form(const at::Tensor& tensor);

/// What does not fit, as one text that stays readable.
class MismatchReport {
 public:
  void add(const std::string& text);
  /// Throws DataError, naming the file, when there is any.
  void throw_if_any(const std::filesystem::path& file) const;

 private:
  int count_ = 0;
  std::string text_;
};

}  // namespace lockstep
